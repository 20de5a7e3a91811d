/**
 * What the page costs: a list of 1,000 sandboxes in the browser, and 20 open pages on the server. Both are bounded in
 * processor time. The time on the clock is only printed, because a busy machine makes any bound of it wrong.
 */
import { readFile } from 'node:fs/promises';
import { setTimeout as delay } from 'node:timers/promises';
import type { SandboxView } from '@torpor/sdk';
import type { Browser, Page } from 'playwright-core';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { makeDataDir, startTorpor, type TorporProcess } from '../crash/torpor-process.ts';
import { findChromium, openBrowser } from './chromium.ts';

const chromium = findChromium();
const runtime = process.getuid?.() === 0 ? 'gvisor' : 'process';
const MEASURED_SECONDS = 12;
const LONGEST_FRAME_MS = 50;
const MOST_OF_A_CORE = 0.05;

describe.skipIf(chromium === undefined)('the cost of the page', { timeout: 300_000 }, () => {
  let dataDir: Awaited<ReturnType<typeof makeDataDir>>;
  let server: TorporProcess;
  let browser: Browser;
  beforeAll(async () => {
    dataDir = await makeDataDir();
    server = await startTorpor(dataDir.path, { TORPOR_LOG_LEVEL: 'error' }, runtime);
    await server.torpor.sandboxes.create({ name: 'one' });
    browser = await openBrowser(chromium ?? '');
  }, 120_000);
  afterAll(async () => {
    await browser?.close();
    await server?.end();
    await dataDir?.remove();
  }, 120_000);

  it('is little for a frame of 1,000 sandboxes that are scrolled and filtered', async () => {
    const [one] = (await server.torpor.sandboxes.page()).items;
    const items = Array.from({ length: 1_000 }, (_, index) => manyOf(one as SandboxView, index));
    const other = await browser.newContext({ viewport: { width: 1_280, height: 800 } });
    const list = await other.newPage();
    await list.route(/\/v1\/sandboxes\?/, (route) =>
      route.fulfill({ contentType: 'application/json', body: JSON.stringify({ items, nextCursor: null }) }),
    );
    await list.goto((await server.torpor.page.link()).url);
    await list.getByRole('link', { name: 'Sandboxes', exact: true }).click();
    await list.getByRole('table').waitFor();
    await delay(1_000);
    await browser.startTracing(list, {
      categories: ['disabled-by-default-devtools.timeline', 'devtools.timeline', 'toplevel'],
    });
    for (let step = 0; step < 40; step++) {
      await inFrame(list, `document.querySelector('.sandbox-list').scrollTop = ${step * 1_000}`);
    }
    for (const text of ['n', 'name-9', 'name-99', '', 'user=3', '']) {
      const typed = `const filter = document.querySelector('.filter'); filter.value = ${JSON.stringify(text)};`;
      await inFrame(list, `{ ${typed} filter.dispatchEvent(new Event('input', { bubbles: true })); }`);
    }
    const tasks = longestTasks(JSON.parse((await browser.stopTracing()).toString()));
    expect(tasks.count).toBeGreaterThan(46);
    console.log(
      `1,000 sandboxes: ${tasks.count} tasks of the page's thread; the longest took ${tasks.wallMs.toFixed(1)} ms ` +
        `(${tasks.cpuMs.toFixed(1)} ms of processor time)`,
    );
    expect(tasks.cpuMs).toBeGreaterThan(0);
    expect(tasks.cpuMs).toBeLessThan(LONGEST_FRAME_MS);
    expect(await list.getByRole('row').count()).toBeLessThan(80);
    await other.close();
  });

  it('is little for the server while 20 pages are open', async () => {
    const contexts = await Promise.all(Array.from({ length: 20 }, () => browser.newContext()));
    const links = await Promise.all(contexts.map(() => server.torpor.page.link()));
    await Promise.all(
      contexts.map(async (one, index) => {
        const opened = await one.newPage();
        await opened.goto(links[index]?.url ?? '', { timeout: 120_000 });
        await opened.getByRole('heading', { name: 'Overview' }).waitFor({ timeout: 120_000 });
      }),
    );
    await delay(2_000);
    const share = await coreShare(server.pid);
    await Promise.all(contexts.map((one) => one.close()));
    await delay(1_000);
    const idle = await coreShare(server.pid);
    const percent = (value: number) => `${(value * 100).toFixed(2)} %`;
    console.log(`20 pages: ${percent(share)} of a core; without pages: ${percent(idle)}`);
    expect(share).toBeLessThan(MOST_OF_A_CORE);
  });
});

/** Runs a script in the page and waits for the frame that shows its effect. */
async function inFrame(page: Page, script: string): Promise<void> {
  await page.evaluate(script);
  await page.evaluate('new Promise((done) => requestAnimationFrame(() => setTimeout(done)))');
}

interface TraceEvent {
  readonly name: string;
  readonly pid: number;
  readonly tid: number;
  readonly dur?: number;
  readonly tdur?: number;
  readonly args?: { readonly name?: string };
}

/** The longest task of the threads that draw pages. A frame cannot be shown while a task runs. */
function longestTasks({ traceEvents }: { readonly traceEvents: readonly TraceEvent[] }) {
  const threads = new Set(
    traceEvents
      .filter(({ name, args }) => name === 'thread_name' && args?.name === 'CrRendererMain')
      .map(({ pid, tid }) => `${pid} ${tid}`),
  );
  const tasks = traceEvents.filter(
    ({ name, pid, tid }) =>
      /^RunTask$|^ThreadControllerImpl::RunTask$/.test(name) && threads.has(`${pid} ${tid}`),
  );
  const most = (of: (task: TraceEvent) => number) => Math.max(0, ...tasks.map(of)) / 1_000;
  return { count: tasks.length, wallMs: most(({ dur = 0 }) => dur), cpuMs: most(({ tdur = 0 }) => tdur) };
}

function manyOf(sandbox: SandboxView, index: number): SandboxView {
  const id = `sbx_${String(index).padStart(20, '0')}` as SandboxView['id'];
  const state = index % 3 === 0 ? ('paused' as const) : ('running' as const);
  return { ...sandbox, id, name: `name-${index}`, state, metadata: { user: String(index % 10) } };
}

/** The share of one core that a process takes. */
async function coreShare(pid: number): Promise<number> {
  const before = await cpuSeconds(pid);
  await delay(MEASURED_SECONDS * 1_000);
  return ((await cpuSeconds(pid)) - before) / MEASURED_SECONDS;
}

/** The processor time of a process, all threads together. */
async function cpuSeconds(pid: number): Promise<number> {
  const fields = (await readFile(`/proc/${pid}/stat`, 'utf8')).split(') ')[1]?.split(' ') ?? [];
  return (Number(fields[11]) + Number(fields[12])) / 100;
}
