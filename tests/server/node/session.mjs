// Drives a stdio server with an official TypeScript client: v1, or v2 in one of its eras.
// node session.mjs v1|v2-legacy|v2-auto|v2-pin PACKAGES COMMAND ARGS...
import { createRequire } from 'node:module';
import { pathToFileURL } from 'node:url';

const [kind, packages, command, ...args] = process.argv.slice(2);
const require = createRequire(packages + '/');
const load = (name) => import(pathToFileURL(require.resolve(name)).href);

const fail = (message) => {
  console.error(message);
  process.exit(1);
};
const check = (condition, message) => condition || fail(message);

let Client, StdioClientTransport, options;
if (kind === 'v1') {
  ({ Client } = await load('@modelcontextprotocol/sdk/client/index.js'));
  ({ StdioClientTransport } = await load('@modelcontextprotocol/sdk/client/stdio.js'));
  options = { capabilities: {} };
} else {
  ({ Client } = await load('@modelcontextprotocol/client'));
  ({ StdioClientTransport } = await load('@modelcontextprotocol/client/stdio'));
  const mode = { 'v2-legacy': 'legacy', 'v2-auto': 'auto', 'v2-pin': { pin: '2026-07-28' } }[kind];
  options = { capabilities: {}, versionNegotiation: { mode } };
}

const client = new Client({ name: 'tests', version: '1' }, options);
await client.connect(new StdioClientTransport({ command, args, stderr: 'inherit' }));

const { tools } = await client.listTools();
check(tools.length === 21, `21 tools expected, ${tools.length} listed`);
const call = async (name, args = {}) => {
  const result = await client.callTool({ name, arguments: args });
  return { text: result.content.map((part) => part.text).join('\n'), failed: result.isError === true };
};
const id = (text) => text.match(/\[([^\]]+)\]/)[1];
const ok = async (name, args) => {
  const { text, failed } = await call(name, args);
  check(!failed, `${name}: ${text}`);
  return text;
};

const a = id(await ok('remember', { text: 'Use ruff for linting', tags: ['python'] }));
const b = id(await ok('remember', { text: 'Never use ruff for linting' }));
check((await ok('recall', { query: 'linting with ruff' })).includes(a), 'recall finds what was remembered');
await ok('revise', { id: a, importance: 0.9 });
await ok('link', { src: a, dst: b, rel: 'contradicts' });
await ok('neighbors', { id: a });
await ok('unlink', { src: a, dst: b });
await ok('search_memory', { query: 'ruff' });
await ok('find', { tags: ['python'] });
await ok('find_conflicts', {});
await ok('supersede', { old: a, new: b });
await ok('restore', { id: a });
const event = id((await ok('history', { id: a })).split('\n').at(-1));
await ok('undo', { event });
await ok('report_outcome', { task: 'lint the code', success: true, used: [b] });
await ok('recommend', { task: 'lint the code' });
await ok('maintain', {});
await ok('pending_judgements', {});
await ok('memory_status', {});
check((await call('resolve_judgement', { older: a, newer: b, decision: 'MERGE' })).failed, 'nothing to resolve');
check((await call('remember', {})).failed, 'a missing argument is an error the model sees');
await client.callTool({ name: 'no_such_tool', arguments: {} }).then(
  () => fail('an unknown tool is refused'),
  (error) => check(error.code === -32602, `unknown tool: ${error.code}`),
);
await ok('forget', { ids: [b] });

const { resources } = await client.listResources();
check(resources.some((one) => one.uri === 'memory://stats'), 'stats are a resource');
await client.readResource({ uri: `memory://${a}` });
const { prompts } = await client.listPrompts();
check(prompts.length === 2, 'two prompts');
await client.getPrompt({ name: 'recall_first', arguments: { task: 'lint' } });

const abort = new AbortController();
const asked = { name: 'recall', arguments: { query: 'anything' } };
const withdrawn = kind === 'v1'
  ? client.callTool(asked, undefined, { signal: abort.signal })
  : client.callTool(asked, { signal: abort.signal });
abort.abort();
await withdrawn.then(() => fail('a withdrawn call is not answered'), () => {});

const count = Number(process.env.CALLS ?? 100);
const answers = await Promise.all(
  Array.from({ length: count }, (_, n) => ok('remember', { text: `Note ${kind} ${process.pid} ${n}`, on_conflict: 'ignore' })),
);
check(new Set(answers.map(id)).size === count, 'every call has its own answer');
await client.close();
console.log(`ok ${kind}`);
