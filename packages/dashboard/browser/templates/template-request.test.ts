import type { TemplateView } from '@torpor/sdk';
import { describe, expect, it } from 'vitest';
import { EMPTY_TEMPLATE, limitsText, templateRequestOf } from './template-request.ts';

const CHECKPOINT = 'ckpt_aaaaaaaaaaaaaaaaaaaa';

describe('the form of a new template', () => {
  it('names a checkpoint, with limits', () => {
    const draft = {
      ...EMPTY_TEMPLATE,
      name: ' app:v2 ',
      checkpoint: CHECKPOINT,
      memoryMb: '512',
      cpus: '0.5',
    };
    expect(templateRequestOf(draft)).toEqual({
      name: 'app:v2',
      from: CHECKPOINT,
      resources: { memoryMb: 512, cpus: 0.5 },
    });
    expect(templateRequestOf({ ...draft, replaces: true })).toMatchObject({ replace: true });
  });

  it('fetches an image, with the credentials of its registry, and sends nothing of other sources', () => {
    const draft = {
      ...EMPTY_TEMPLATE,
      source: 'image' as const,
      name: 'node',
      image: 'ghcr.io/acme/app:1',
      checkpoint: CHECKPOINT,
      registryUser: 'ana',
      registryPassword: ' secret ',
      runsEntrypoint: true,
      description: 'Node',
    };
    expect(templateRequestOf(draft)).toEqual({
      name: 'node',
      image: 'ghcr.io/acme/app:1',
      registryCredentials: { username: 'ana', password: ' secret ' },
      entrypoint: true,
      description: 'Node',
    });
  });

  it('uploads an archive, and starts a command in it', () => {
    const archive = new Blob(['tar']);
    const draft = { ...EMPTY_TEMPLATE, source: 'archive' as const, name: 'app', archive, port: '3000' };
    expect(templateRequestOf({ ...draft, command: 'npm start', format: 'docker' })).toEqual({
      name: 'app',
      archive,
      format: 'docker',
      services: [{ name: 'start', command: 'npm start', port: 3_000 }],
    });
    expect(() => templateRequestOf({ ...draft, archive: undefined })).toThrow('Choose the file');
  });
});

describe('the limits of a template', () => {
  it('are shown with their units', () => {
    const withLimits = (resources: TemplateView['resources']) => limitsText({ resources } as TemplateView);
    expect(withLimits({ memoryMb: 512, cpus: 1, diskMb: 2_000, processes: 50 })).toBe(
      '512\u00a0MB, 1 CPU, 2.0\u00a0GB disk, 50 processes',
    );
    expect(withLimits({})).toBe('none');
  });
});
