/**
 * An AI agent whose sandbox is paused while the model thinks. Every pause makes a checkpoint, and a rollback to it
 * undoes a mistake.
 */
import { Sandbox } from '@torpor/sdk';

type Action =
  | { readonly do: 'write'; readonly path: string; readonly contents: string }
  | { readonly do: 'run'; readonly command: string }
  | { readonly do: 'finish'; readonly answer: string };

/** Put your own model here: it reads the transcript and returns the next action. */
type Model = (transcript: readonly string[]) => Promise<Action>;

/** A model that plays fixed actions, including a mistake. */
function scripted(...actions: Action[]): Model {
  return async () => actions.shift() ?? { do: 'finish', answer: 'I have nothing more to say.' };
}

const model = scripted(
  { do: 'write', path: 'add.sh', contents: 'echo $(($1 - $2))\n' },
  { do: 'run', command: 'sh test.sh' },
  { do: 'run', command: 'rm -rf ./*' },
  { do: 'write', path: 'add.sh', contents: 'echo $(($1 + $2))\n' },
  { do: 'run', command: 'sh test.sh' },
  { do: 'finish', answer: 'add.sh adds.' },
);

const sandbox = await Sandbox.create();
const transcript: string[] = [];
function note(line: string): void {
  transcript.push(line);
  console.log(line);
}

async function perform(action: Exclude<Action, { do: 'finish' }>): Promise<string> {
  if (action.do === 'write') {
    await sandbox.files.write(action.path, action.contents);
    return `wrote ${action.path}`;
  }
  const { exitCode, stdout, stderr } = await sandbox.exec(action.command);
  return `ran ${action.command}: exit code ${exitCode}, ${`${stdout}${stderr}`.trim() || 'no output'}`;
}

try {
  await sandbox.files.write(
    'test.sh',
    'sum=$(sh add.sh 2 3); [ "$sum" = 5 ] || { echo "2 + 3 = $sum?"; exit 1; }\n',
  );
  for (;;) {
    const [action, { checkpoint }] = await Promise.all([model(transcript), sandbox.pause()]);
    if (action.do === 'finish') {
      note(`finished: ${action.answer}`);
      break;
    }
    note(await perform(action));
    // The agent must not remove the tests. If they are gone, its last action is undone.
    if ((await sandbox.exec('test -e test.sh')).exitCode !== 0) {
      await sandbox.rollback(checkpoint);
      note('took that back');
    }
  }
} finally {
  await sandbox.kill();
}
