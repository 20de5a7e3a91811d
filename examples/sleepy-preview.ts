/** A web server that is paused when idle and resumes on the next request. */
import { Sandbox } from '@torpor/sdk';

/** Counts its requests in a file, because every runtime keeps files over a pause. */
const SERVER = `
  const { appendFileSync, statSync } = require("node:fs");
  require("node:http")
    .createServer((request, response) => {
      appendFileSync("visits", ".");
      response.end("visit " + statSync("visits").size);
    })
    .listen(process.env.PORT);
`;

const sandbox = await Sandbox.create({
  services: [{ name: 'app', command: `exec node -e '${SERVER}'`, port: 3000 }],
});

async function visit(): Promise<string> {
  const response = await sandbox.fetch(3000, '/');
  const text = await response.text();
  if (!response.ok) throw new Error(text);
  return text;
}

try {
  console.log(`awake: ${await visit()}`);

  const { checkpoint } = await sandbox.pause();
  console.log(`asleep, sealed in ${checkpoint.id}`);

  // The request itself resumes the sandbox; it only takes a little longer.
  console.log(`woken by a visitor: ${await visit()}`);

  await sandbox.pause();
  const visits = await Promise.all(Array.from({ length: 10 }, visit));
  console.log(`woken by ten at once: ${visits.sort().join(', ')}`);

  const { generation } = await sandbox.refresh();
  console.log(`started ${generation} times`);
} finally {
  await sandbox.kill();
}
