import type { SandboxView, Service } from '@torpor/sdk';
import type { Browser, BrowserContext, Page } from 'playwright-core';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { makeDataDir, startTorpor, type TorporProcess } from '../crash/torpor-process.ts';
import { findChromium, openBrowser } from './chromium.ts';

const chromium = findChromium();
/** For a busy machine. */
const PATIENCE = { timeout: 20_000 };

/** What a section shows when it is loaded. */
const LOADED = {
  Templates: 'built in',
  Secrets: 'No secrets yet',
  Keys: 'running sandboxes',
  Webhooks: 'No webhooks yet',
  Sessions: 'No sessions yet',
  Builds: 'No builds yet',
  Audit: 'Creation began',
} as const;

/** Runs in the browser of everyone who opens the preview. */
const HOSTILE_SCRIPT = `
  const target = new URLSearchParams(location.search).get('page') ?? 'http://127.0.0.1:' + location.port;
  const told = {};
  const tell = () => { document.title = JSON.stringify(told); };
  const attempt = async (name, work) => {
    try { told[name] = await work(); } catch (error) { told[name] = 'refused: ' + error.name; }
    tell();
  };
  const post = { method: 'POST', credentials: 'include', headers: { 'content-type': 'text/plain' }, body: '{}' };
  attempt('read', async () => (await fetch(target + '/v1/sandboxes', { credentials: 'include' })).status);
  attempt('change', async () => (await fetch(target + '/v1/sandboxes', { ...post, mode: 'no-cors' })).type);
  attempt('form', async () => {
    const form = document.createElement('form');
    form.method = 'post'; form.action = target + '/v1/sandboxes'; form.target = 'sink'; form.enctype = 'text/plain';
    document.body.append(form); form.submit(); return 'sent';
  });
  attempt('cookie', async () => document.cookie);
  attempt('parent', async () => { parent.document.title = 'owned'; return 'owned'; });
  attempt('message', async () => { parent.postMessage({ event: { type: 'sandbox.killed' } }, '*'); return 'sent'; });
  if (parent !== self) attempt('top', async () => { top.location = 'about:blank#owned'; return 'sent'; });
  const frame = document.createElement('iframe');
  frame.name = 'framed'; frame.src = target + '/';
  document.body.append(frame);
`;

/** The app serves the script, and prints a line that pretends to be something else. */
const HOSTILE_APP = `
  const html = '<!doctype html><title>{}</title><h1>hostile</h1><iframe name="sink"></iframe><script>' +
    Buffer.from('${Buffer.from(HOSTILE_SCRIPT).toString('base64')}', 'base64').toString() + '</script>';
  console.log('<img src=x onerror="document.title=1">\\u001b]0;owned\\u0007\\u001b[2Jafter\\u202etxt');
  require('node:http').createServer((request, response) => {
    response.setHeader('content-type', 'text/html');
    response.setHeader('set-cookie', 'torpor-page=forged; Path=/');
    response.end(html);
  }).listen(Number(process.env.PORT));
`;

const service: Service = {
  name: 'hostile',
  port: 3000,
  command: `exec '${process.execPath}' -e "$(echo ${Buffer.from(HOSTILE_APP).toString('base64')} | base64 -d)"`,
};

describe.skipIf(chromium === undefined)('the page under attack', { timeout: 60_000 }, () => {
  let dataDir: Awaited<ReturnType<typeof makeDataDir>>;
  let server: TorporProcess;
  let browser: Browser;
  let context: BrowserContext;
  let page: Page;
  let sandbox: SandboxView;
  beforeAll(async () => {
    dataDir = await makeDataDir();
    server = await startTorpor(dataDir.path, { TORPOR_LOG_LEVEL: 'error' }, 'process', [
      '--set',
      'server.keyCheckMs=500',
    ]);
    sandbox = await server.torpor.sandboxes.create({ name: 'hostile', services: [service] });
    browser = await openBrowser(chromium ?? '');
    context = await browser.newContext({ permissions: ['clipboard-read'] });
    context.setDefaultTimeout(20_000);
    page = await context.newPage();
    await page.goto((await server.torpor.page.link()).url);
    await page.getByRole('link', { name: 'Sandboxes', exact: true }).waitFor();
  }, 60_000);
  afterAll(async () => {
    await browser?.close();
    await server?.end();
    await dataDir?.remove();
  });

  const open = (tab: string) => page.evaluate(`location.hash = '#/sandboxes/${sandbox.id}/${tab}'`);
  const count = async () => (await server.torpor.sandboxes.page()).items.length;

  it('a preview in its frame cannot read, change, navigate or frame the page', async () => {
    await open('preview');
    const frame = page.frameLocator('iframe[title^="Preview"]');
    await frame.getByRole('heading', { name: 'hostile' }).waitFor();
    const preview = () =>
      page
        .mainFrame()
        .childFrames()
        .find((one) => one.url().includes('.sbx.localhost'));
    const told = async () => JSON.parse((await preview()?.title()) || '{}');
    await expect.poll(told, PATIENCE).toMatchObject({
      read: expect.stringContaining('refused'),
      form: 'sent',
      parent: expect.stringContaining('refused'),
      top: expect.stringContaining('refused'),
      message: 'sent',
      change: 'opaque',
    });
    expect((await told()).cookie).not.toContain('torpor-page');
    expect(await page.title()).toBe('Sandboxes · Torpor');
    // The second frame in the preview, after `sink`. It loses its name when the browser refuses to load it.
    const framed = () => preview()?.childFrames()[1]?.url() ?? '';
    await expect.poll(framed, PATIENCE).toMatch(/^chrome-error:/);
    expect(await count()).toBe(1);
    expect(await page.getByText('running').first().isVisible()).toBe(true);
    expect(await context.cookies()).not.toContainEqual(expect.objectContaining({ value: 'forged' }));
  });

  it('a preview in a tab of its own cannot use the session of the page', async () => {
    const tab = await context.newPage();
    await tab.goto(`${sandbox.urls?.['3000']}/?page=${encodeURIComponent(server.url)}`);
    await expect
      .poll(async () => JSON.parse((await tab.title()) || '{}'), PATIENCE)
      .toMatchObject({ read: expect.stringContaining('refused'), form: 'sent' });
    expect(await count()).toBe(1);
    // A form of another site that leads to an address of the API, in the address bar.
    const response = await tab.goto(`${server.url}/v1/sandboxes`);
    expect(response?.status()).toBe(401);
    await tab.close();
  });

  it('a hostile line of a log is text', async () => {
    await open('logs');
    const output = page.getByLabel('Output', { exact: true });
    await expect
      .poll(() => output.textContent(), PATIENCE)
      .toContain('<img src=x onerror="document.title=1">aftertxt');
    expect(await output.locator('img').count()).toBe(0);
    expect(await page.title()).toBe('Sandboxes · Torpor');
  });

  it('a hostile file name is text, and its page does not run in the page', async () => {
    const name = '<img src=x onerror=document.title=1>\u202egpj.html';
    const files = server.torpor.sandboxes.files(sandbox.id);
    await files.write(`~/${name}`, '<script>document.title = "owned"</script>');
    await open('files');
    const button = page.getByRole('button', {
      name: '<img src=x onerror=document.title=1>\\u{202e}gpj.html',
      exact: true,
    });
    await button.click();
    await expect.poll(() => page.getByLabel('Contents').inputValue(), PATIENCE).toContain('<script>');
    expect(await page.locator('img').count()).toBe(0);
    expect(await page.title()).toBe('Sandboxes · Torpor');
    const direct = await page.evaluate(
      async (path) => (await fetch(path)).status,
      `/v1/sandboxes/${sandbox.id}/files?path=~/${encodeURIComponent(name)}`,
    );
    expect(direct).toBe(401);
  });

  it('escape sequences in the terminal reach neither clipboard, title nor links', async () => {
    await open('terminal');
    const screen = page.locator('.xterm-rows');
    await expect.poll(() => screen.textContent(), PATIENCE).toMatch(/\$|#/);
    await page.keyboard.type(
      String.raw`printf '\033]52;c;b3duZWQ=\007\033]0;owned\007\033]8;;http://evil.example/\007click\033]8;;\007 d''one\n'`,
    );
    await page.keyboard.press('Enter');
    await expect.poll(() => screen.textContent(), PATIENCE).toContain('click done');
    expect(await page.title()).toBe('Sandboxes · Torpor');
    expect(await page.evaluate('navigator.clipboard.readText()')).not.toBe('owned');
    await screen.getByText('click done').last().click({ force: true });
    expect(page.url()).toContain('/terminal');
    expect(context.pages()).toHaveLength(1);
  });

  it('a sign-in that may only look has no buttons that change, and no terminal', async () => {
    await server.torpor.sandboxes.snapshot(sandbox.id, { name: 'kept' });
    const other = await (await browser.newContext()).newPage();
    await other.goto((await server.torpor.page.link({ readOnly: true })).url);
    await other.getByRole('link', { name: 'Sandboxes', exact: true }).click();
    await other.getByRole('row').filter({ hasText: 'hostile' }).getByRole('link').click();
    await other.getByRole('heading', { name: 'hostile' }).waitFor();
    expect(await other.getByRole('button', { name: /Pause|Kill|Fork|Snapshot|Create/ }).count()).toBe(0);
    await other.getByRole('link', { name: 'Checkpoints' }).click();
    await other.getByText('kept', { exact: true }).waitFor();
    expect(await other.getByRole('button', { name: /Fork|Roll back|Name|Verify|Delete/ }).count()).toBe(0);
    await other.getByRole('link', { name: 'Terminal' }).click();
    await other.getByText('This key or sign-in may only look.').waitFor();
    await other.getByRole('link', { name: 'Files' }).click();
    await other.getByText('gpj.html').first().waitFor();
    expect(await other.getByText('Upload').count()).toBe(0);
    const changes = /New |Create|Change|Delete|Replace|Publish|Revoke|Send|Replay|Name…/;
    for (const [section, shown] of Object.entries(LOADED)) {
      await other.getByRole('link', { name: section, exact: true }).click();
      await other.getByText(shown).first().waitFor();
      expect([section, await other.getByRole('button', { name: changes }).allTextContents()]).toEqual([
        section,
        [],
      ]);
    }
    await other.close();
  });

  it('a key that ends signs the page out, and its streams with it', async () => {
    const { key } = await server.torpor.keys.create({ name: 'short', expiresInSeconds: 5 });
    const other = await (await browser.newContext()).newPage();
    await other.goto(server.url);
    await other.getByLabel('API key').fill(key);
    await other.getByRole('button', { name: 'Sign in' }).click();
    await other.getByRole('link', { name: 'Sandboxes', exact: true }).click();
    await other.getByRole('row').filter({ hasText: 'hostile' }).waitFor();
    await other.getByLabel('API key').waitFor({ timeout: 30_000 });
    await other.close();
  });
});
