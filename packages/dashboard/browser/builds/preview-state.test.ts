import type { BuildStatus } from '@torpor/sdk';
import { describe, expect, it } from 'vitest';
import { previewStateOf } from './preview-state.ts';

const build = { sandbox_state: 'running', expired: false, preview_url: 'http://x' } as BuildStatus;

describe('the state of a preview', () => {
  it('is that of the ledger when the status of the build is older', () => {
    expect(previewStateOf(build, 'pausing')).toBe('pausing');
    expect(previewStateOf(build, 'paused')).toBe('paused');
    expect(previewStateOf({ ...build, sandbox_state: 'paused' }, 'running')).toBe('running');
  });

  it('is that of the status when the ledger says nothing about it', () => {
    expect(previewStateOf(build, undefined)).toBe('running');
    expect(previewStateOf({ ...build, sandbox_state: 'unknown' }, 'lost')).toBe('unknown');
  });

  it('is nothing without a preview, and expired for good', () => {
    expect(previewStateOf({ ...build, sandbox_state: null }, 'running')).toBe(null);
    expect(previewStateOf({ ...build, expired: true }, 'running')).toBe('expired');
  });
});
