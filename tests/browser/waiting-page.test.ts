import { bareSandboxId } from '@torpor/protocol';
import type { Browser } from 'playwright-core';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { makeDataDir, startTorpor, type TorporProcess } from '../crash/torpor-process.ts';
import { guestService } from '../wake/guest-app.ts';
import { findChromium, openBrowser } from './chromium.ts';

const chromium = findChromium();
/** A directory for pictures of the pages, for somebody who wants to look at them. */
const pictures = process.env['TORPOR_PICTURES'];

describe.skipIf(chromium === undefined)('in a real browser', { timeout: 120_000 }, () => {
  let dataDir: Awaited<ReturnType<typeof makeDataDir>>;
  let server: TorporProcess;
  let browser: Browser;
  beforeAll(async () => {
    dataDir = await makeDataDir();
    server = await startTorpor(dataDir.path, { TORPOR_LOG_LEVEL: 'error' });
    browser = await openBrowser(chromium ?? '');
  }, 120_000);
  afterAll(async () => {
    await browser?.close();
    await server?.end();
    await dataDir?.remove();
  });

  it('the page of a sandbox that sleeps becomes the app, without a reload by hand', async () => {
    const { sandboxes } = server.torpor;
    // As slow to come up as a dev server is, so that there is something to wait for.
    const { id, urls } = await sandboxes.create({ services: [guestService({ delayMs: 2_500 })] });
    await sandboxes.pause(id);
    const page = await browser.newPage({ viewport: { width: 1_000, height: 700 } });
    const asked: string[] = [];
    const faults: string[] = [];
    page.on('request', (request) => asked.push(request.url()));
    page.on('console', (message) => message.type() === 'error' && faults.push(message.text()));
    const response = await page.goto(`${urls?.['3000']}/page#kept`, { timeout: 60_000 });
    expect(response?.status()).toBe(503);
    await page.getByRole('heading', { name: 'Waking up' }).waitFor();
    if (pictures !== undefined) {
      await page.screenshot({ path: `${pictures}/waiting-light.png` });
      await page.emulateMedia({ colorScheme: 'dark' });
      await page.screenshot({ path: `${pictures}/waiting-dark.png` });
    }
    await page.locator('#app').waitFor({ timeout: 60_000 });
    expect(await page.title()).toBe('the app');
    expect(new URL(page.url()).hash).toBe('#kept');
    expect((await sandboxes.get(id)).generation).toBe(2);
    const host = new URL(urls?.['3000'] ?? '').host;
    expect(asked.filter((url) => new URL(url).host !== host && !url.startsWith('data:'))).toEqual([]);
    // The page itself is a 503, which Chromium tells its console; nothing else is wrong with it.
    expect(faults.filter((text) => !text.includes('503'))).toEqual([]);
    await page.close();
  });

  it('a private preview opens by its link, and stays open', async () => {
    const { sandboxes } = server.torpor;
    const { id, urls } = await sandboxes.create({ services: [guestService()], preview: 'private' });
    const context = await browser.newContext();
    const page = await context.newPage();
    expect((await page.goto(`${urls?.['3000']}/page`))?.status()).toBe(403);
    await page.getByRole('heading', { name: 'This preview is private' }).waitFor();
    if (pictures !== undefined) await page.screenshot({ path: `${pictures}/private.png` });
    const { url } = await sandboxes.previewLink(id, { port: 3000 });
    await page.goto(url.replace('/?', '/page?'));
    await page.locator('#app').waitFor();
    expect(page.url()).toBe(`${urls?.['3000']}/page`);
    expect((await page.reload())?.status()).toBe(200);
    expect(await page.evaluate('document.cookie')).toBe('');
    await context.close();
  });

  it('a closed port leads to the open ones', async () => {
    const { id } = await server.torpor.sandboxes.create({ services: [guestService()] });
    const port = new URL(server.url).port;
    const page = await browser.newPage();
    const host = (appPort: number) => `http://${appPort}-${bareSandboxId(id)}.sbx.localhost:${port}`;
    expect((await page.goto(`${host(4321)}/`))?.status()).toBeGreaterThanOrEqual(502);
    await page.getByRole('heading', { name: 'Nothing is listening here' }).waitFor({ timeout: 30_000 });
    if (pictures !== undefined) await page.screenshot({ path: `${pictures}/closed.png` });
    const link = page.getByRole('link', { name: 'port 3000' });
    // Which ports are open is asked for only a moment, and a busy machine may need a longer one.
    while ((await link.count()) === 0) await page.reload();
    await link.click();
    await page.waitForURL(`${host(3000)}/`);
    await page.close();
  });
});
