/**
 * A program of a user who has installed the SDK. It is compiled against the packed package and run on all installed versions
 * of Node, and its output is checked. Lines that must not compile are marked.
 */
import {
  type CheckpointView,
  NotFoundError,
  Sandbox,
  type SandboxState,
  type SandboxView,
  Torpor,
  TorporError,
} from '@torpor/sdk';

const sandbox = await Sandbox.create({
  name: 'web',
  services: [{ name: 'app', command: 'npm start', port: 3000 }],
});
const { exitCode, stdout } = await sandbox.exec('uname', { signal: AbortSignal.timeout(10_000) });
const code: number = exitCode;

let streamed = '';
for await (const event of sandbox.exec({ command: 'uname', cwd: '/' })) {
  if (event.type === 'stdout') streamed += event.data;
}

const response: Response = await sandbox.fetch(3000, '/hello', { method: 'POST', body: 'x' });
const answer = await response.text();

const state: SandboxState = sandbox.state;
const view: SandboxView = sandbox.view;
const checkpoints: CheckpointView[] = [];
for await (const checkpoint of sandbox.checkpoints()) checkpoints.push(checkpoint);

let missing:
  | { code: 'not_found'; retryable: boolean; hint: string; sandboxId: string | undefined }
  | undefined;
try {
  await Sandbox.connect('sbx_00000000000000000000', { torpor: new Torpor() });
} catch (error) {
  if (error instanceof NotFoundError && error instanceof TorporError) {
    missing = { code: error.code, retryable: error.retryable, hint: error.hint, sandboxId: error.sandboxId };
  }
}

// @ts-expect-error a misspelt option is not ignored
void (() => Sandbox.create({ nane: 'web' }));
// @ts-expect-error an exit code is a number
void (() => exitCode.trim());
// @ts-expect-error there is no such state
void (() => sandbox.waitFor('asleep'));

console.log(
  JSON.stringify({
    code,
    stdout,
    streamed,
    answer,
    state,
    id: view.id,
    checkpoints: checkpoints.length,
    missing,
  }),
);
