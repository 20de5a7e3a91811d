/**
 * `npm run screenshots`: makes the pictures of README.md and docs/page.md in docs/images, from the real page of a real
 * server with real sandboxes. It takes four minutes, because the charts need something to show. As root it uses gVisor.
 */
import { mkdir, rm, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { setTimeout as delay } from 'node:timers/promises';
import type { SandboxId, Torpor } from '@torpor/sdk';
import type { Browser, BrowserContext, Page } from 'playwright-core';
import { findChromium, openBrowser } from '../tests/browser/chromium.ts';
import { makeDataDir, startTorpor } from '../tests/crash/torpor-process.ts';

const IMAGES = join(import.meta.dirname, '../docs/images');
const SIZE = { width: 1_280, height: 800 };
const QUALITY = 0.82;
const MAX_BYTES = 200_000;
/** In each round some sandboxes sleep for the first half of it. */
const ROUNDS = 5;
const ROUND_MS = 30_000;

const chromium = findChromium();
if (chromium === undefined) throw new Error('Chromium is needed: apt-get install chromium');
const runtime = process.getuid?.() === 0 ? 'gvisor' : 'process';
const dataDir = await makeDataDir();
const server = await startTorpor(dataDir.path, { TORPOR_LOG_LEVEL: 'error' }, runtime);
try {
  const shop = await prepare(server.torpor);
  const browser = await openBrowser(chromium);
  try {
    await mkdir(IMAGES, { recursive: true });
    for (const scheme of ['light', 'dark'] as const) await takePictures(browser, scheme, shop);
  } finally {
    await browser.close();
  }
} finally {
  await server.end();
  await dataDir.remove();
}

/** A few sandboxes with some history. Returns the one with the most to see. */
async function prepare(torpor: Torpor): Promise<SandboxId> {
  const { sandboxes } = torpor;
  const web = (port: number) => [{ name: 'web', port, command: 'python3 -m http.server $PORT' }];
  const create = (name: string, user: string, rest: Parameters<typeof sandboxes.create>[0] = {}) =>
    sandboxes.create({ name, metadata: { user }, onIdle: 'keep', ...rest });
  const shop = await create('storefront', 'ana', { services: web(3_000), timeoutSeconds: 86_400 });
  await sandboxes.files(shop.id).write('index.html', '<h1>Made slowly, kept for good</h1>');
  await sandboxes.files(shop.id).write('README.md', '# Alder & Finch\n');
  await sandboxes.snapshot(shop.id, { name: 'first-draft' });
  const docs = await create('docs-site', 'ben', { services: web(4_321), timeoutSeconds: 28_800 });
  const agent = await create('invoice-agent', 'ana', { timeoutSeconds: 3_600 });
  const notebook = await create('data-notebook', 'kim', { services: web(8_888) });
  const review = await create('pr-1284-preview', 'ben');
  await sandboxes.execInBackground(agent.id, { command: 'while sleep 5; do date; done' });
  await sandboxes.fork(shop.id, { name: 'storefront-dark-theme', metadata: { user: 'ana' }, onIdle: 'keep' });
  const sleepers: readonly SandboxId[] = [notebook.id, review.id, docs.id];
  for (let round = 0; round < ROUNDS; round++) {
    console.log(`history for the charts: ${round + 1} of ${ROUNDS}, ${ROUND_MS / 1_000} s each`);
    const asleep = sleepers.slice(0, 1 + (round % sleepers.length));
    for (const id of asleep) await sandboxes.pause(id);
    await delay(ROUND_MS / 2);
    for (const id of asleep) await sandboxes.resume(id);
    await delay(ROUND_MS / 2);
  }
  await sandboxes.files(shop.id).write('index.html', '<h1>Made by hand, kept for good</h1>');
  await sandboxes.snapshot(shop.id, { name: 'reviewed' });
  // Without its memory it cannot stay in memory either.
  await sandboxes.pause(review.id, { mode: 'files' });
  await sandboxes.pause(docs.id);
  await sandboxes.pause(notebook.id);
  await sandboxes.resume(docs.id);
  return shop.id;
}

async function takePictures(browser: Browser, scheme: 'light' | 'dark', shop: SandboxId): Promise<void> {
  const context = await browser.newContext({ viewport: SIZE, colorScheme: scheme, deviceScaleFactor: 2 });
  const page = await context.newPage();
  await page.goto((await server.torpor.page.link()).url);
  await page.getByRole('heading', { name: 'Overview' }).waitFor();
  await delay(1_500);
  await save(page, context, `overview-${scheme}`);
  const show = (...parts: readonly string[]) => page.evaluate(`location.hash = '#/${parts.join('/')}'`);
  await show('sandboxes');
  await page.getByRole('row').filter({ hasText: 'storefront' }).first().waitFor();
  await save(page, context, `sandboxes-${scheme}`);
  await show('sandboxes', shop, 'checkpoints');
  await page.getByText('reviewed', { exact: true }).waitFor();
  await save(page, context, `checkpoints-${scheme}`);
  await context.close();
}

/** Chromium writes WebP, which is a third of the size of PNG. */
async function save(page: Page, context: BrowserContext, name: string): Promise<void> {
  const png = await page.screenshot();
  const blank = await context.newPage();
  const script = `(async () => {
    const image = new Image();
    image.src = 'data:image/png;base64,${png.toString('base64')}';
    await image.decode();
    const canvas = document.createElement('canvas');
    canvas.width = image.width;
    canvas.height = image.height;
    canvas.getContext('2d').drawImage(image, 0, 0);
    return canvas.toDataURL('image/webp', ${QUALITY}).split(',')[1];
  })()`;
  const webp = Buffer.from(await blank.evaluate<string>(script), 'base64');
  await blank.close();
  if (webp.length > MAX_BYTES) throw new Error(`${name} has ${webp.length} bytes, more than ${MAX_BYTES}.`);
  const file = join(IMAGES, `page-${name}.webp`);
  await rm(file, { force: true });
  await writeFile(file, webp);
  console.log(`${file}: ${Math.round(webp.length / 1_000)} kB`);
}
