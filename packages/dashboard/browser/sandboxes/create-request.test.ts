import { describe, expect, it } from 'vitest';
import { EMPTY_DRAFT, requestOf } from './create-request.ts';
import { EMPTY_NETWORK } from './network-rules.ts';

describe('the create form', () => {
  it('sends nothing for fields that are left empty', () => {
    expect(requestOf(EMPTY_DRAFT)).toEqual({});
  });

  it('sends what was filled in', () => {
    expect(
      requestOf({
        ...EMPTY_DRAFT,
        name: ' web ',
        template: 'base',
        timeoutSeconds: '3600',
        onTimeout: 'kill',
        preview: 'private',
        network: {
          ...EMPTY_NETWORK,
          mode: 'none',
          allow: 'registry.npmjs.org, example.com',
          secrets: 'OPENAI_API_KEY',
        },
        env: 'A=1\nB=x=y\n\n',
        metadata: 'user=ana',
        services: [
          { name: '', command: 'npm run dev', port: '3000' },
          { name: 'empty', command: ' ', port: '' },
        ],
        memoryMb: '512',
        diskMb: '2000',
      }),
    ).toEqual({
      name: 'web',
      template: 'base',
      timeoutSeconds: 3600,
      onTimeout: 'kill',
      preview: 'private',
      network: {
        mode: 'none',
        allow: ['registry.npmjs.org', 'example.com'],
        secrets: ['OPENAI_API_KEY'],
      },
      env: { A: '1', B: 'x=y' },
      metadata: { user: 'ana' },
      services: [{ name: 'service-1', command: 'npm run dev', port: 3000 }],
      resources: { memoryMb: 512, diskMb: 2_000 },
    });
  });

  it('refuses a line that is not a variable', () => {
    expect(() => requestOf({ ...EMPTY_DRAFT, env: 'A=1\nno variable' })).toThrow(
      '"no variable" is not NAME=value.',
    );
  });
});
