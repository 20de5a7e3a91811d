/** The part of an image's configuration that a template uses. */
import type { Image, ImageLayer } from '@torpor/engine';
import { envSchema } from '@torpor/protocol';
import type { ConfigDocument } from './documents.ts';
import { platformText } from './platform.ts';

export function configuredImage(
  document: ConfigDocument,
  { reference, digest }: { readonly reference: string | null; readonly digest: string },
  layers: readonly ImageLayer[],
): Image {
  const config = document.config ?? {};
  return {
    about: {
      reference,
      digest,
      platform: platformText(document),
      user: config.User || null,
      workdir: config.WorkingDir || null,
      env: envOf(config.Env ?? []),
      entrypoint: [...(config.Entrypoint ?? [])],
      cmd: [...(config.Cmd ?? [])],
      ports: portsOf(Object.keys(config.ExposedPorts ?? {})),
    },
    layers,
  };
}

/** `80/tcp`, `80`; ports of UDP are left out, because nothing connects to them. */
function portsOf(exposed: readonly string[]): number[] {
  const ports = exposed.flatMap((text) => {
    const [, port] = /^(\d{1,5})(?:\/tcp)?$/.exec(text) ?? [];
    return port === undefined || Number(port) < 1 || Number(port) > 65_535 ? [] : [Number(port)];
  });
  return [...new Set(ports)].sort((a, b) => a - b);
}

/** Variables whose names no shell can use are left out. */
function envOf(lines: readonly string[]): Record<string, string> {
  const env: Record<string, string> = {};
  for (const line of lines) {
    const at = line.indexOf('=');
    const pair = { [line.slice(0, Math.max(at, 0))]: line.slice(at + 1) };
    if (at > 0 && envSchema.safeParse(pair).success) Object.assign(env, pair);
  }
  return env;
}
