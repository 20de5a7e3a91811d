/** `torpor up`: starts a server, prints the start page, and runs until it is told to stop. */
import { factsOf, TorporError } from '@torpor/protocol';
import { readConfig } from './config.ts';
import { faultsFrom } from './fault-injection.ts';
import { openLog } from './observe/log.ts';
import { type RunningServer, type StartOptions, startServer } from './start.ts';

/** The parts of the process that the server uses. */
export interface Host {
  print(line: string): void;
  printError(line: string): void;
  /** Calls back for each stop signal. */
  onStop(callback: () => void): void;
  /** Calls back for each unhandled rejection. */
  onFault(callback: (thrown: unknown) => void): void;
  exitNow(code: number): void;
  killSelf(): void;
}

const processHost: Host = {
  print: (line) => void process.stdout.write(`${line}\n`),
  printError: (line) => void process.stderr.write(`${line}\n`),
  onStop: (callback) => {
    for (const signal of ['SIGTERM', 'SIGINT'] as const) process.on(signal, callback);
  },
  onFault: (callback) => {
    process.on('unhandledRejection', callback);
  },
  exitNow: (code) => process.exit(code),
  killSelf: () => process.kill(process.pid, 'SIGKILL'),
};

/** Resolves with the exit code. */
export async function serve(
  argv: readonly string[],
  env: NodeJS.ProcessEnv,
  host: Host = processHost,
  choose?: StartOptions['choose'],
): Promise<number> {
  try {
    const config = await readConfig(argv, env);
    const log = openLog({ level: config.logLevel });
    const stopRequested = stopRequests(host);
    // A bug in one request must not end all other requests.
    host.onFault((thrown) => log.error({ event: 'fault', error: thrown }, 'an unhandled error'));
    const server = await startServer(config, {
      log,
      faults: faultsFrom(env, host.killSelf),
      env,
      ...(choose === undefined ? {} : { choose }),
    });
    printStartPage(server, host);
    await stopRequested;
    log.info({ event: 'stop' }, 'stopping');
    await server.stop();
    log.info({ event: 'stop' }, 'stopped');
    return 0;
  } catch (thrown) {
    const error = TorporError.from(thrown);
    host.printError(`torpor: ${error.code === 'internal' ? String(thrown) : error.message}`);
    host.printError(`        ${error.hint}`);
    return factsOf(error.code).exit;
  }
}

/** The first signal stops the server in order; the second one exits at once. */
function stopRequests(host: Host): Promise<void> {
  return new Promise((resolve) => {
    let stopRequested = false;
    host.onStop(() => {
      if (stopRequested) host.exitNow(1);
      stopRequested = true;
      resolve();
    });
  });
}

const KEEPS = { memory: 'memory+files', files: 'files', none: 'nothing' } as const;
/** The start page shows only the most important limits of the runtime. */
const LIMITS_SHOWN = 3;

function printStartPage(
  { url, domain, authorityFile, key, pageUrl, runtime, config }: RunningServer,
  host: Host,
): void {
  const { limits, name, capabilities } = runtime;
  if (limits.length > 0) host.print(`note: ${limits.slice(0, LIMITS_SHOWN).join(' ')}`);
  if (key.made !== null) host.print(`api key (shown once, stored in ${key.file}): ${key.made}`);
  if (authorityFile !== undefined) {
    host.print(`tls: trust ${authorityFile} in your browser, or for all programs of this machine:`);
    host.print(
      `  sudo cp ${authorityFile} /usr/local/share/ca-certificates/torpor.crt && sudo update-ca-certificates`,
    );
  }
  host.print(`previews: ${new URL(url).protocol}//<port>-<id>.${domain}`);
  host.print(
    key.made === null
      ? `page: ${pageUrl} (sign in with an API key, or by the link that \`npx torpor page\` prints)`
      : `page (this link signs in once): ${pageUrl}`,
  );
  host.print(`torpor ready ${url} runtime=${name} keeps=${KEEPS[capabilities.pause]} data=${config.dataDir}`);
  host.print('try:');
  host.print('  npx torpor build "a live dashboard"');
  host.print('  npx torpor create');
  host.print("  npx torpor exec <id> 'echo hello from inside'");
  host.print('  npx torpor pause <id>');
}
