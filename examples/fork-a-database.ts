/** Tries ten changes to one database at once. Each fork has its own copy of the files; the original stays unchanged. */
import { Sandbox } from '@torpor/sdk';

const ACCOUNTS = 'ada,1000\ngrace,2000\nedsger,3000\n';
const total = (sandbox: Sandbox) => run(sandbox, "awk -F, '{ sum += $2 } END { print sum }' accounts.csv");

async function run(sandbox: Sandbox, command: string): Promise<string> {
  const { exitCode, stdout, stderr } = await sandbox.exec(command);
  if (exitCode !== 0) throw new Error(stderr);
  return stdout.trim();
}

const original = await Sandbox.create({ metadata: { example: 'fork-a-database' } });
const forks: Sandbox[] = [];
try {
  await original.files.write('accounts.csv', ACCOUNTS);
  forks.push(...(await original.fork({ count: 10 })));

  const outcomes = await Promise.all(
    forks.map(async (fork, index) => {
      const interest = index + 1;
      await run(
        fork,
        `awk -F, '{ print $1 "," $2 * (100 + ${interest}) / 100 }' accounts.csv > new && mv new accounts.csv`,
      );
      return `${interest}%: ${await total(fork)}`;
    }),
  );

  for (const outcome of outcomes) console.log(outcome);
  console.log(`the original: ${await total(original)}`);
} finally {
  await Promise.all([original, ...forks].map((sandbox) => sandbox.kill()));
}
