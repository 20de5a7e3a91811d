import { Readable } from 'node:stream';
import type { Clock } from '@torpor/engine';
import { failureOf, ManualClock, unhurried } from '@torpor/engine/testing';
import { describe, expect, it } from 'vitest';
import { type AmazonKeys, amazonCredentials } from './amazon-registry.ts';
import type { HttpGet } from './http-get.ts';

const REGISTRY = '123456789012.dkr.ecr.eu-west-1.amazonaws.com';
const keys = { accessKeyId: 'AKIDEXAMPLE', secretAccessKey: 'never-sent', region: 'eu-west-1' };
const clock: Clock = new ManualClock(Date.UTC(2026, 0, 2, 3, 4, 5));

type Asked = Parameters<HttpGet>[0];

/** Amazon, as far as it is asked. */
function amazon(statusCode: number, body: unknown) {
  const asked: Asked[] = [];
  const get: HttpGet = async (request) => {
    asked.push(request);
    const text = typeof body === 'string' ? body : JSON.stringify(body);
    return Object.assign(Readable.from([Buffer.from(text)]), { statusCode }) as never;
  };
  const credentials = (registry = REGISTRY, more: Partial<AmazonKeys> = {}) =>
    amazonCredentials(registry, { ...keys, ...more }, { get, clock }, unhurried);
  return { asked, credentials };
}

const tokenOf = (text: string) => ({
  authorizationData: [{ authorizationToken: Buffer.from(text).toString('base64') }],
});

describe('keys of AWS', () => {
  it('sign a request to Amazon, which gives the password for the registry', async () => {
    const { asked, credentials } = amazon(200, tokenOf('AWS:pass:word'));
    expect(await credentials()).toEqual({ username: 'AWS', password: 'pass:word' });
    const [request] = asked;
    expect(request?.url.href).toBe('https://api.ecr.eu-west-1.amazonaws.com/');
    expect(request).toMatchObject({
      body: '{}',
      headers: {
        'x-amz-date': '20260102T030405Z',
        'x-amz-target': expect.stringMatching(/GetAuthorizationToken$/),
      },
      authorization: expect.stringMatching(
        /^AWS4-HMAC-SHA256 Credential=AKIDEXAMPLE\/20260102\/eu-west-1\/ecr\/aws4_request, SignedHeaders=content-type;host;x-amz-content-sha256;x-amz-date;x-amz-target, Signature=[0-9a-f]{64}$/,
      ),
    });
    expect(JSON.stringify(request)).not.toContain('never-sent');
  });

  it('are sent to no other host than that of the region of the registry', async () => {
    const { asked, credentials } = amazon(200, tokenOf('AWS:p'));
    for (const registry of [
      'ghcr.io',
      `${REGISTRY}.example.com`,
      `${REGISTRY}:8443`,
      'x.dkr.ecr.eu-west-1.amazonaws.com',
    ])
      expect(await failureOf(credentials(registry))).toMatchObject({ code: 'invalid_request' });
    for (const region of ['us-east-1', 'eu-west-1.example.com/', ''])
      expect(await failureOf(credentials(REGISTRY, { region }))).toMatchObject({ code: 'invalid_request' });
    expect(asked).toEqual([]);
    await credentials('123456789012.dkr.ecr.cn-north-1.amazonaws.com.cn', { region: 'cn-north-1' });
    expect(asked[0]?.url.host).toBe('api.ecr.cn-north-1.amazonaws.com.cn');
  });

  it.each([
    [400, {}, 'forbidden'],
    [403, 'no', 'forbidden'],
    [500, {}, 'unreachable'],
    [200, 'not JSON', 'unreachable'],
    [200, { authorizationData: [] }, 'unreachable'],
    [200, tokenOf('no password'), 'unreachable'],
  ])('that Amazon answers with %s %j are an error', async (status, body, code) => {
    expect(await failureOf(amazon(status, body).credentials())).toMatchObject({ code });
  });
});
