/** Writes an image with one layer as an archive that `ctr images import`, `skopeo` and `docker load` read. */
import { mkdir, mkdtemp, rename, rm, stat, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { programOutput, sha256Of, sha256OfFile } from '@torpor/host';

export interface ImageOrder {
  /** The file to write. */
  readonly archive: string;
  /** The full name of the image, with its tag. */
  readonly reference: string;
  /** The content of the layer. */
  readonly root: string;
  /** The field `config` of the configuration: Cmd, Env, User and the like. */
  readonly config: Readonly<Record<string, unknown>>;
}

const ARCHITECTURE = process.arch === 'x64' ? 'amd64' : process.arch;
const MANIFEST = 'application/vnd.oci.image.manifest.v1+json';
/** The same files make the same layer. */
const REPRODUCIBLE = [
  '--sort=name',
  '--mtime=@0',
  '--owner=0',
  '--group=0',
  '--numeric-owner',
  '--format=posix',
];
const PLAIN_TIMES = '--pax-option=exthdr.name=%d/PaxHeaders/%f,delete=atime,delete=ctime';
const TAR_MS = 300_000;

export async function writeOciArchive({ archive, reference, root, config }: ImageOrder): Promise<void> {
  const work = await mkdtemp(join(tmpdir(), 'torpor-image-'));
  try {
    const blobs = join(work, 'blobs', 'sha256');
    await mkdir(blobs, { recursive: true });
    const layer = join(work, 'layer.tar');
    await tar([...REPRODUCIBLE, PLAIN_TIMES, '-C', root, '-cf', layer, '.']);
    const digest = await sha256OfFile(layer);
    const { size } = await stat(layer);
    await rename(layer, join(blobs, digest));
    const put = async (value: unknown) => {
      const text = JSON.stringify(value);
      const name = sha256Of(text);
      await writeFile(join(blobs, name), text);
      return { digest: `sha256:${name}`, size: Buffer.byteLength(text) };
    };
    const configuration = await put({
      architecture: ARCHITECTURE,
      os: 'linux',
      config,
      rootfs: { type: 'layers', diff_ids: [`sha256:${digest}`] },
    });
    const manifest = await put({
      schemaVersion: 2,
      mediaType: MANIFEST,
      config: { mediaType: 'application/vnd.oci.image.config.v1+json', ...configuration },
      layers: [{ mediaType: 'application/vnd.oci.image.layer.v1.tar', digest: `sha256:${digest}`, size }],
    });
    const annotations = {
      'io.containerd.image.name': reference,
      'org.opencontainers.image.ref.name': reference.slice(reference.lastIndexOf(':') + 1),
    };
    const index = { schemaVersion: 2, manifests: [{ mediaType: MANIFEST, ...manifest, annotations }] };
    await writeFile(join(work, 'index.json'), JSON.stringify(index));
    await writeFile(join(work, 'oci-layout'), JSON.stringify({ imageLayoutVersion: '1.0.0' }));
    await tar([...REPRODUCIBLE, '-C', work, '-cf', `${archive}.part`, 'oci-layout', 'index.json', 'blobs']);
    await rename(`${archive}.part`, archive);
  } finally {
    await rm(work, { recursive: true, force: true });
  }
}

async function tar(args: readonly string[]): Promise<void> {
  await programOutput('tar', args, { timeoutMs: TAR_MS });
}
