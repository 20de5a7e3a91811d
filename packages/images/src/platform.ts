/** Platforms of images, as `linux/amd64` or `linux/arm/v7`. */

/** The names that images use for Node's names of processors. */
const ARCHITECTURES: Readonly<Record<string, string>> = {
  x64: 'amd64',
  ia32: '386',
  arm64: 'arm64',
  arm: 'arm',
};

export interface Platform {
  readonly os: string;
  readonly architecture: string;
  readonly variant?: string | undefined;
}

/** The platform that sandboxes of this machine can run. */
export function machinePlatform(arch: string = process.arch): Platform {
  return { os: 'linux', architecture: ARCHITECTURES[arch] ?? arch };
}

export function platformText({ os, architecture, variant }: Platform): string {
  return [os, architecture, ...(variant ? [variant] : [])].join('/');
}

/** Whether a machine of the platform `wanted` runs it, whatever its variant: `linux/arm64/v8` runs on `linux/arm64`. */
export function isPlatform(found: Platform, wanted: Platform): boolean {
  return found.os === wanted.os && found.architecture === wanted.architecture;
}
