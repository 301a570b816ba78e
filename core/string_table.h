/* A table of strings that grows, and in which each is found again. */

#include <stdlib.h>

#define LARGE 0x7fffffff

/* A string and what it stands for, which is often the same. */
typedef struct {
    uint32_t at, size;
    uint32_t means_at, means;
} Entry;

/* Strings in order of appearance, each found again by what it says. A look-up touches one slot, one entry and the bytes
   of both strings, which lie side by side. */
typedef struct {
    char *bytes;
    size_t used, room;
    Entry *entries;
    uint32_t *slots; /* number + 1, or 0 */
    uint32_t count, fits, mask;
} Strings;

static int grow(void **memory, size_t size)
{
    void *larger = realloc(*memory, size);
    if (larger == NULL) {
        PyErr_NoMemory();
        return 0;
    }
    *memory = larger;
    return 1;
}

static uint64_t hash_of(const char *text, size_t size, uint64_t seed)
{
    uint64_t hash = seed ^ (size * 0x9e3779b97f4a7c15u);
    while (size >= 8) {
        uint64_t word;
        memcpy(&word, text, 8);
        hash = (hash ^ word) * 0xff51afd7ed558ccdu;
        hash ^= hash >> 32;
        text += 8;
        size -= 8;
    }
    uint64_t word = 0;
    memcpy(&word, text, size);
    hash = (hash ^ word) * 0xff51afd7ed558ccdu;
    hash ^= hash >> 32;
    hash *= 0xc4ceb9fe1a85ec53u;
    return hash ^ (hash >> 29);
}

/* Where a string is in the slots, or the empty slot where it would be. */
static inline uint32_t slot_of(const Strings *strings, const char *text, size_t size, uint64_t hash)
{
    uint32_t slot = (uint32_t)hash & strings->mask;
    for (; strings->slots[slot]; slot = (slot + 1) & strings->mask) {
        const Entry *known = &strings->entries[strings->slots[slot] - 1];
        if (known->size == size && memcmp(strings->bytes + known->at, text, size) == 0)
            break;
    }
    return slot;
}

/* One more string at the end, and what it stands for. */
static int append(Strings *strings, const char *text, size_t size, const char *meaning, size_t means)
{
    int same = means == size && memcmp(text, meaning, size) == 0;
    size_t more = same ? size : size + means;
    if (size > LARGE || means > LARGE || strings->used + more > LARGE) {
        PyErr_SetString(PyExc_OverflowError, "more text than a table of chunks holds");
        return 0;
    }
    if (strings->used + more > strings->room) {
        size_t room = (strings->used + more) * 3 / 2 + 4096;
        if (!grow((void **)&strings->bytes, room))
            return 0;
        strings->room = room;
    }
    if (strings->count == strings->fits) {
        uint32_t fits = strings->fits * 3 / 2 + 256;
        if (!grow((void **)&strings->entries, fits * sizeof(Entry)))
            return 0;
        strings->fits = fits;
    }
    uint32_t at = (uint32_t)strings->used;
    memcpy(strings->bytes + at, text, size);
    if (!same)
        memcpy(strings->bytes + at + size, meaning, means);
    strings->entries[strings->count++] = (Entry){at, (uint32_t)size, same ? at : at + (uint32_t)size, (uint32_t)means};
    strings->used += more;
    return 1;
}

/* Slots enough for one more string. */
static int widen(Strings *strings, uint64_t seed)
{
    if (strings->slots != NULL && 2 * (strings->count + 1) <= strings->mask)
        return 1;
    uint32_t size = strings->slots == NULL ? 1024 : 2 * (strings->mask + 1);
    uint32_t *slots = calloc(size, sizeof(uint32_t));
    if (slots == NULL) {
        PyErr_NoMemory();
        return 0;
    }
    free(strings->slots);
    strings->slots = slots;
    strings->mask = size - 1;
    for (uint32_t number = 0; number < strings->count; number++) {
        const Entry *entry = &strings->entries[number];
        const char *text = strings->bytes + entry->at;
        slots[slot_of(strings, text, entry->size, hash_of(text, entry->size, seed))] = number + 1;
    }
    return 1;
}

static void let_go(Strings *strings)
{
    free(strings->bytes);
    free(strings->entries);
    free(strings->slots);
    memset(strings, 0, sizeof *strings);
}
