/**
 * `npm run screenshots`: makes the pictures of README.md and docs/page.md in docs/images, from the real page of a real
 * server with real sandboxes. It takes a few minutes, because the charts need something to show. As root it uses gVisor.
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
const ROUNDS = 5;
const BETWEEN_ROUNDS_MS = 30_000;

const SHOP = `<!doctype html><meta charset="utf-8"><meta name="viewport" content="width=device-width"><title>Alder & Finch</title>
<style>
  body { margin: 0; font: 16px/1.5 system-ui, sans-serif; color: #22201c; background: #faf7f2 }
  header { display: flex; justify-content: space-between; padding: 22px 40px; border-bottom: 1px solid #e6dfd3 }
  h1 { font: 600 42px/1.15 Georgia, serif; margin: 48px 40px 6px }
  p { margin: 0 40px 30px; color: #6b6458 }
  main { display: grid; grid-template-columns: repeat(4, 1fr); gap: 22px; padding: 0 40px 40px }
  article div { height: 170px; border-radius: 10px; margin-bottom: 10px }
</style>
<header><strong>Alder &amp; Finch</strong><span>Chairs &nbsp; Lamps &nbsp; Journal &nbsp; Cart (2)</span></header>
<h1>Made slowly, kept for good</h1><p>New this week from four small workshops.</p>
<main>${[
  ['Ash stool', '£140', '#d9c7a7'],
  ['Reading lamp', '£95', '#b7c4b1'],
  ['Oak shelf', '£210', '#c9a98a'],
  ['Wool throw', '£80', '#a9b3bd'],
]
  .map(
    ([name, price, colour]) =>
      `<article><div style="background:${colour}"></div><strong>${name}</strong><br>${price}</article>`,
  )
  .join('')}</main>`;

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
  await sandboxes.files(shop.id).write('index.html', SHOP);
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
    for (const id of sleepers.slice(0, 1 + (round % sleepers.length))) {
      await sandboxes.pause(id);
      await delay(1_000);
      await sandboxes.resume(id);
    }
    await delay(BETWEEN_ROUNDS_MS);
  }
  await sandboxes.files(shop.id).write('index.html', SHOP.replace('slowly', 'by hand'));
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
  await show('sandboxes', shop, 'preview');
  await page.frameLocator('iframe').getByText('Made').waitFor();
  await save(page, context, `preview-${scheme}`);
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
