/* The loops in the file LOOPS, for every generation of processors that is told apart; `generation` says which to take. */

#define TARGET
#define NAMED(name) plain_##name
#include LOOPS

#ifdef WIDE
#define TARGET FOR_AVX2
#define NAMED(name) avx2_##name
#include LOOPS
#define TARGET FOR_AVX512
#define NAMED(name) avx512_##name
#include LOOPS
static const Loops *const generations[] = {&plain_loops, &avx2_loops, &avx512_loops};
#else
static const Loops *const generations[] = {&plain_loops};
#endif
