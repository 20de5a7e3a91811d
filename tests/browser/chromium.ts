/** Debian's Chromium, driven by Playwright; nothing is downloaded, and nothing outside this machine is asked. */
import { existsSync } from 'node:fs';
import { type Browser, chromium } from 'playwright-core';

const PLACES = ['/usr/bin/chromium', '/usr/bin/chromium-browser', '/usr/bin/google-chrome'];

/** Undefined where there is none; on CI that is a failure. */
export function findChromium(): string | undefined {
  const found = PLACES.find((path) => existsSync(path));
  if (found === undefined && process.env['CI'] === 'true') throw new Error('Chromium must be there on CI.');
  return found;
}

export function openBrowser(executablePath: string): Promise<Browser> {
  return chromium.launch({
    executablePath,
    args: [
      // Root may not use the sandbox of its own that Chromium brings along.
      ...(process.getuid?.() === 0 ? ['--no-sandbox'] : []),
      '--disable-background-networking',
      '--disable-component-update',
      '--disable-default-apps',
      '--disable-dev-shm-usage',
      '--disable-gpu',
      '--no-first-run',
      '--host-resolver-rules=MAP * ~NOTFOUND, EXCLUDE localhost, EXCLUDE *.localhost, EXCLUDE 127.0.0.1',
    ],
  });
}
