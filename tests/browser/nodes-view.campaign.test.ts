/** The page of a cluster: both nodes are seen from either of them, and what happens to them. */
import type { Browser, Page } from 'playwright-core';
import { afterAll, beforeAll, describe, expect, inject, it } from 'vitest';
import { type ClusterNode, type ClusterWorld, makeClusterWorld } from '../cluster/cluster-world.ts';
import { seriousFindings } from './axe.ts';
import { findChromium, openBrowser } from './chromium.ts';

const chromium = findChromium();
const postgres = inject('postgresUrl');
const pictures = process.env['TORPOR_PICTURES'];

describe.skipIf(chromium === undefined || postgres === null)(
  'the page of two nodes',
  { timeout: 120_000 },
  () => {
    let world: ClusterWorld;
    let a: ClusterNode;
    let b: ClusterNode;
    let browser: Browser;
    let page: Page;
    beforeAll(async () => {
      world = await makeClusterWorld(postgres ?? '', {
        settings: ['engine.nodeLeaseMs=8s', 'engine.nodeStopMs=1s'],
      });
      [a, b] = [await world.start('a'), await world.start('b')];
      const { nodes, sandboxes } = a.torpor;
      await nodes.cordon('a');
      for (const name of ['app-0', 'app-1']) await sandboxes.create({ name });
      await nodes.uncordon('a');
      await nodes.cordon('b');
      await sandboxes.create({ name: 'app-2' });
      await nodes.uncordon('b');
      browser = await openBrowser(chromium ?? '');
      page = await browser.newPage({ viewport: { width: 1_280, height: 800 } });
      page.setDefaultTimeout(60_000);
      await page.goto((await a.torpor.page.link()).url);
      await page.getByRole('link', { name: 'Nodes', exact: true }).click();
    }, 180_000);
    afterAll(async () => {
      await browser?.close();
      await world?.[Symbol.asyncDispose]();
    }, 180_000);

    const row = (node: string) =>
      page.getByRole('row').filter({ has: page.getByText(node, { exact: true }) });
    const button = (name: string) => page.getByRole('button', { name, exact: true });
    const picture = async (name: string) => {
      if (pictures !== undefined) await page.screenshot({ path: `${pictures}/${name}.png` });
    };

    it('shows each node with what runs on it, and which of them answers', async () => {
      await page.getByText('2 nodes, all alive · 3 running sandboxes').waitFor();
      await row('a').getByText('answers you').waitFor();
      expect(await row('b').getByText('answers you').count()).toBe(0);
      expect(await seriousFindings(page)).toEqual([]);
      await picture('nodes');
    });

    it('leads from a node to its sandboxes, which say where they are', async () => {
      await row('b')
        .getByRole('link', { name: /running/ })
        .click();
      await page.getByRole('heading', { name: 'Sandboxes' }).waitFor();
      const rows = page.getByRole('row').filter({ hasText: 'app-' });
      await expect.poll(() => rows.count()).toBe(2);
      expect(await rows.filter({ hasText: 'on b' }).count()).toBe(2);
      await picture('sandboxes-of-a-node');
      await page.getByLabel(/^Filter/).fill('');
      await expect.poll(() => rows.count()).toBe(3);
      await page.getByRole('link', { name: 'Nodes', exact: true }).click();
    });

    it('cordons a node, and drains it with its progress', async () => {
      await button('Cordon b').click();
      await row('b').getByText('cordoned').waitFor();
      await button('Uncordon b').click();
      await row('b').getByText('alive', { exact: true }).waitFor();
      await button('Drain b').click();
      await page.getByRole('dialog').getByRole('button', { name: 'Drain' }).click();
      await row('b').getByText('drained').waitFor();
      await row('b').getByText('2 moved').waitFor();
      await row('a').getByText('3 running').waitFor();
      await picture('nodes-drained');
      await button('Uncordon b').click();
      await row('b').getByText('alive', { exact: true }).waitFor();
    });

    it('says that a node is away, on the overview too, and when it is back', async () => {
      await b.kill('SIGKILL');
      await row('b').getByText('away').waitFor();
      await page.getByText('1 of 2 nodes alive').waitFor();
      await picture('nodes-away');
      await page.getByRole('link', { name: 'Overview', exact: true }).click();
      await page.getByText('The node b is away').waitFor();
      await picture('overview-node-away');
      await page.getByRole('link', { name: 'Nodes', exact: true }).click();
      b = await world.start('b');
      await row('b').getByText('alive', { exact: true }).waitFor();
    });
  },
);
