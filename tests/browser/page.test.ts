import { once } from 'node:events';
import { readFile } from 'node:fs/promises';
import { createServer } from 'node:http';
import type { AddressInfo } from 'node:net';
import { Torpor } from '@torpor/sdk';
import type { Browser, BrowserContext, Page } from 'playwright-core';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { makeDataDir, startTorpor, type TorporProcess } from '../crash/torpor-process.ts';
import { guestService } from '../wake/guest-app.ts';
import { seriousFindings } from './axe.ts';
import { findChromium, openBrowser } from './chromium.ts';

const chromium = findChromium();
/** For a busy machine. */
const PATIENCE = { timeout: 20_000 };

describe.skipIf(chromium === undefined)('the page', { timeout: 60_000 }, () => {
  let dataDir: Awaited<ReturnType<typeof makeDataDir>>;
  let server: TorporProcess;
  let browser: Browser;
  let context: BrowserContext;
  let page: Page;
  const faults: string[] = [];
  const asked: string[] = [];
  beforeAll(async () => {
    dataDir = await makeDataDir();
    server = await startTorpor(dataDir.path, { TORPOR_LOG_LEVEL: 'error' }, 'process', [
      '--webhook-networks',
      '127.0.0.1/32',
    ]);
    browser = await openBrowser(chromium ?? '');
    context = await browser.newContext();
    context.setDefaultTimeout(20_000);
    page = await context.newPage();
    page.on('request', (request) => asked.push(request.url()));
    page.on('console', (message) => message.type() === 'error' && faults.push(message.text()));
    page.on('pageerror', (error) => faults.push(String(error)));
  }, 60_000);
  afterAll(async () => {
    await browser?.close();
    await server?.end();
    await dataDir?.remove();
  });

  const row = (name: string) => page.getByRole('row').filter({ hasText: name });
  const tab = (name: string) => page.getByLabel('Parts of the sandbox').getByRole('link', { name });
  const section = (name: string) => page.getByLabel('Sections').getByRole('link', { name, exact: true });
  const button = (name: string) => page.getByRole('button', { name, exact: true });
  const answer = (name: string) => page.getByRole('dialog').getByRole('button', { name, exact: true });
  /** Dark is checked once; `npm run test:page` checks both everywhere. */
  const findings = async (colorScheme: 'light' | 'dark' = 'light') => {
    await page.emulateMedia({ colorScheme });
    expect(await seriousFindings(page)).toEqual([]);
  };

  it('signs in by a one-time link, which leaves no trace in the address', async () => {
    const { url } = await server.torpor.page.link();
    await page.goto(url);
    await page.getByText('Nothing needs your attention.').waitFor();
    await findings();
    expect(page.url()).not.toContain('sign-in');
    expect(await context.cookies()).toMatchObject([
      { name: 'torpor-page', httpOnly: true, sameSite: 'Strict' },
    ]);
    expect(await page.evaluate('document.cookie')).toBe('');
    const other = await browser.newPage();
    await other.goto(url);
    await other.getByText('This link was used before, or has expired.').waitFor();
    await other.close();
  });

  it('creates a sandbox, and has a terminal in it', async () => {
    await page.getByRole('link', { name: 'Sandboxes', exact: true }).click();
    await page.getByRole('heading', { name: 'No sandboxes yet' }).waitFor();
    await button('Create').click();
    await page.getByLabel('Name', { exact: true }).fill('story');
    await button('Add a service').click();
    const { command } = guestService();
    await page.getByLabel('Command of service 1').fill(command);
    await page.getByLabel('Port of service 1').fill('3000');
    await page.getByRole('dialog').getByRole('button', { name: 'Create', exact: true }).click();
    await page.getByRole('heading', { name: 'story' }).waitFor();
    await tab('Terminal').click();
    // The terminal has the focus as soon as it is on the page; keys that are pressed before are not meant for it.
    const focused = page.locator('.xterm-helper-textarea:focus');
    await focused.waitFor({ state: 'attached' });
    const screen = page.locator('.xterm-rows');
    await expect.poll(() => screen.textContent(), PATIENCE).toMatch(/\$|#/);
    await page.keyboard.type('echo $((6*7)) > kept.txt; cat kept.txt; is=same\n');
    await expect.poll(() => screen.textContent(), PATIENCE).toMatch(/42/);
    // The same shell is there after a look at another part.
    await tab('Summary').click();
    await tab('Terminal').click();
    await focused.waitFor({ state: 'attached' });
    await page.keyboard.type('echo "the $is shell"\n');
    await expect.poll(() => screen.textContent(), PATIENCE).toContain('the same shell');
  });

  it('shows the preview in a frame of another origin', async () => {
    await tab('Preview').click();
    const frame = page.frameLocator('iframe');
    await frame.getByText('GET').waitFor();
    expect(new URL(page.frames()[1]?.url() ?? '').hostname).toMatch(/^3000-\w+\.sbx\.localhost$/);
    // In a dark frame the browser draws white text on the white background of the frame.
    await page.emulateMedia({ colorScheme: 'dark' });
    expect(await page.evaluate("getComputedStyle(document.querySelector('iframe')).colorScheme")).toBe(
      'light',
    );
    await findings();
  });

  it('pauses, and does not wake the sandbox by looking at any part of it', async () => {
    await button('Pause').click();
    await page.getByRole('heading', { name: 'This sandbox is asleep' }).waitFor();
    const [sandbox] = (await server.torpor.sandboxes.page()).items;
    for (const name of ['Summary', 'Timeline', 'Checkpoints', 'Terminal', 'Files', 'Processes', 'Preview']) {
      await tab(name).click();
    }
    for (const name of ['Logs', 'Metrics', 'Use it', 'Timeline']) await tab(name).click();
    await page.getByText('Pause began').waitFor();
    await findings();
    expect(await server.torpor.sandboxes.get(sandbox?.id as never)).toMatchObject({
      state: 'paused',
      generation: sandbox?.generation,
    });
  });

  it('wakes by a button that says so, with the files of before', async () => {
    await tab('Files').click();
    await button('Wake the sandbox').click();
    await button('kept.txt').click();
    await expect.poll(() => page.getByLabel('Contents').inputValue(), PATIENCE).toBe('42\n');
  });

  it('shows within a moment what a program does, and kills', async () => {
    await page.getByRole('link', { name: 'Sandboxes', exact: true }).click();
    const { id } = await server.torpor.sandboxes.create({ name: 'elsewhere' });
    await row('elsewhere').getByText('running').waitFor();
    await server.torpor.sandboxes.pause(id);
    await row('elsewhere').getByText('paused').waitFor();
    await page.getByLabel(/^Filter/).fill('ELSE');
    expect(await row('story').count()).toBe(0);
    await findings('dark');
    await row('elsewhere').getByRole('checkbox').check();
    await page.getByRole('toolbar').getByRole('button', { name: 'Kill' }).click();
    await page.getByRole('dialog').getByRole('button', { name: 'Kill' }).click();
    await button('Killed').click();
    await row('elsewhere').getByText('killed').waitFor();
  });

  it('names a checkpoint as a template with limits, and publishes it', async () => {
    const [story] = (await server.torpor.sandboxes.page({ name: 'story' })).items;
    const { id } = await server.torpor.sandboxes.snapshot(story?.id as never);
    await section('Templates').click();
    await page.getByLabel('Name', { exact: true }).fill('app:v1');
    await page.getByLabel('Checkpoint', { exact: true }).fill(id);
    await page.getByLabel('Memory, MB').fill('256');
    await button('Create the template').click();
    await row('app:v1').getByText('256 MB').waitFor();
    await button('Publish app:v1').click();
    await answer('Publish').click();
    await row('app:v1').getByText('default/app:v1').waitFor();
    expect(await server.torpor.templates.get('app:v1')).toMatchObject({
      public: true,
      resources: { memoryMb: 256 },
    });
    await button('Unpublish app:v1').click();
    await row('app:v1').getByText('default/app:v1').waitFor({ state: 'detached' });
  });

  it('sets a secret, whose value it shows nowhere afterwards', async () => {
    await section('Secrets').click();
    await button('New secret').click();
    await page.getByLabel('Name', { exact: true }).fill('API_KEY');
    await page.getByLabel('Host', { exact: true }).fill('api.example.com');
    await page.getByLabel('Value', { exact: true }).fill('not-for-eyes');
    await button('Set the secret').click();
    await row('API_KEY').getByText('Authorization: Bearer').waitFor();
    expect(await page.content()).not.toContain('not-for-eyes');
    expect(await server.torpor.secrets.get('API_KEY')).toMatchObject({
      host: 'api.example.com',
      prefix: 'Bearer ',
    });
    await button('Delete API_KEY').click();
    await answer('Delete').click();
    await page.getByRole('heading', { name: 'No secrets yet' }).waitFor();
  });

  it('sends events to a receiver, again and from a position on', async () => {
    const got: string[] = [];
    const receiver = createServer((request, response) => {
      got.push(String(request.headers['webhook-id']));
      response.end();
    });
    receiver.listen(0, '127.0.0.1');
    await once(receiver, 'listening');
    await section('Webhooks').click();
    const { port } = receiver.address() as AddressInfo;
    await page.getByLabel('Address of the receiver').fill(`http://127.0.0.1:${port}/torpor`);
    await page.getByLabel('After position').fill('0');
    await button('Create the webhook').click();
    await page.getByRole('heading', { name: /shown only now/ }).waitFor();
    const { items } = await server.torpor.eventPage({ limit: 1_000 });
    await expect.poll(() => new Set(got).size, PATIENCE).toBe(items.length);
    await page.getByRole('button', { name: 'Send a test' }).click();
    await page.getByText(/^Delivered: 200 in/).waitFor();
    const before = got.length;
    await page.getByRole('button', { name: 'Replay' }).click();
    await page.getByLabel('From position').fill(String(items.at(-1)?.position));
    await answer('Replay').click();
    await expect.poll(() => got.slice(before), PATIENCE).toEqual([items.at(-1)?.id]);
    await page.getByRole('button', { name: 'Delete' }).click();
    await answer('Delete').click();
    await page.getByRole('heading', { name: 'No webhooks yet' }).waitFor();
    receiver.close();
  });

  it('shows who did what, and saves all of it as JSON lines', async () => {
    await section('Audit').click();
    await page.getByLabel('Find in the audit').fill('killed');
    await row('Killed').first().getByText('user default').waitFor();
    const [download] = await Promise.all([
      page.waitForEvent('download'),
      button('Export as JSON lines').click(),
    ]);
    const lines = (await readFile(await download.path(), 'utf8')).trimEnd().split('\n');
    const all: unknown[] = [];
    for await (const entry of server.torpor.audit()) all.push(entry);
    expect(lines.map((line) => JSON.parse(line))).toEqual(all);
  });

  it('makes an organisation with a limit and a key', async () => {
    await section('Keys').click();
    await page.getByLabel('Name of a new organisation').fill('acme');
    await button('Create an organisation').click();
    await page.getByRole('heading', { name: 'Keys of acme' }).waitFor();
    await page.getByLabel('Name of a new key').fill('ci');
    await button('Create a key').click();
    const shown = page.locator('.copyable', { hasText: /[0-9a-f]{64}/ });
    const key = /[0-9a-f]{64}/.exec((await shown.textContent()) ?? '')?.[0] ?? '';
    await page.getByRole('button', { name: 'Change the limits… of acme' }).click();
    await page.getByLabel('running sandboxes').fill('3');
    await answer('Change the limits').click();
    await page.getByText('0 of 3').waitFor();
    const acme = new Torpor({ url: server.url, apiKey: key });
    expect(await acme.orgs.get('acme')).toMatchObject({ quotas: { runningSandboxes: 3, sandboxes: null } });
  });

  it('asks only its own server and its previews, and breaks no rule of its own policy', () => {
    const { port } = new URL(server.url);
    const foreign = asked.filter((url) => !/^(?:blob|data):/.test(url) && new URL(url).port !== port);
    expect(foreign).toEqual([]);
    expect(faults).toEqual([]);
  });

  it('loads less than 150 kB before the terminal', async () => {
    const fresh = await browser.newPage();
    let received = 0;
    fresh.on('response', async (response) => {
      received += Number((await response.allHeaders())['content-length'] ?? 0);
    });
    await fresh.goto(server.url);
    await fresh.getByLabel('API key').waitFor();
    expect(received).toBeGreaterThan(10_000);
    expect(received).toBeLessThan(150_000);
    await fresh.close();
  });
});
