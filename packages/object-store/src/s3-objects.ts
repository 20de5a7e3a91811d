/**
 * An object store in a bucket of an S3-compatible service.
 *
 * Objects are sent in pieces (multipart), each with a sha256 that the service checks. An upload that is broken off leaves its
 * pieces in the bucket; `delete` removes them.
 *
 * The client library is large, so that only a server with a store loads this file.
 */
import { Readable } from 'node:stream';
import {
  AbortMultipartUploadCommand,
  DeleteObjectCommand,
  GetObjectCommand,
  HeadObjectCommand,
  ListMultipartUploadsCommand,
  ListObjectsV2Command,
  S3Client,
} from '@aws-sdk/client-s3';
import { Upload } from '@aws-sdk/lib-storage';
import type { GiveWay } from '@torpor/host';
import { TorporError } from '@torpor/protocol';
import { inSlices } from './in-slices.ts';
import { checkedKey } from './object-key.ts';
import type { ListedObject, ObjectStore, StoreLimits } from './object-store.ts';
import { faultOf, type StoreFault, type StorePlace, storeFailure } from './store-failure.ts';
import { atLeastAsFast, Watchdog, withinLimit } from './time-limits.ts';

export interface S3Place {
  readonly bucket: string;
  /** Without slashes at its ends; may be empty. */
  readonly prefix: string;
  /** Undefined: as AWS_ENDPOINT_URL says, or AWS itself. */
  readonly endpoint?: string | undefined;
  readonly region: string;
  /** Undefined: from the environment, as AWS programs find them. */
  readonly credentials?: { readonly accessKeyId: string; readonly secretAccessKey: string } | undefined;
}

/** The size of a piece. At most 10,000 pieces make an object, which is 80 GB. */
const PIECE_BYTES = 8 * 1024 ** 2;
/** Pieces that are sent at once, and kept in memory. */
const PIECES_AT_ONCE = 2;
const ATTEMPTS = 3;

export class S3Objects implements ObjectStore {
  readonly url: string;
  readonly #client: S3Client;
  readonly #bucket: string;
  readonly #prefix: string;
  readonly #limits: StoreLimits;
  /** The uploads that give way while they send, by the name of their object. */
  readonly #givingWay = new Map<string, GiveWay>();

  constructor({ bucket, prefix, endpoint, region, credentials }: S3Place, limits: StoreLimits) {
    this.#bucket = bucket;
    this.#prefix = prefix === '' ? '' : `${prefix}/`;
    this.#limits = limits;
    this.url = `s3://${[bucket, prefix].filter((part) => part !== '').join('/')}`;
    const { callMs } = limits;
    this.#client = new S3Client({
      region,
      ...(endpoint === undefined ? {} : { endpoint, forcePathStyle: true }),
      ...(credentials === undefined ? {} : { credentials }),
      maxAttempts: ATTEMPTS,
      requestHandler: {
        connectionTimeout: Math.min(callMs, 10_000),
        // A piece that gives way takes up to twice as long. Uploads and other calls have limits of their own beside this one.
        requestTimeout: 2 * callMs,
        throwOnRequestTimeout: true,
      },
      // Objects are checked by their own digests; some services send checksums that the client cannot check.
      requestChecksumCalculation: 'WHEN_REQUIRED',
      responseChecksumValidation: 'WHEN_REQUIRED',
    });
    // Runs for each attempt, after the body was digested and the request was signed.
    this.#client.middlewareStack.add(
      (next) => (args) => {
        const { Key: name = '' } = args.input as { readonly Key?: string };
        const giveWay = this.#givingWay.get(name);
        const { body } = args.request as { readonly body?: unknown };
        if (giveWay === undefined || !(body instanceof Uint8Array)) return next(args);
        return next({ ...args, request: { ...(args.request as object), body: inSlices(body, giveWay) } });
      },
      { step: 'deserialize', name: 'sendInSlices' },
    );
  }

  location(key: string): string {
    return `s3://${this.#bucket}/${this.#name(key)}`;
  }

  async put(
    key: string,
    content: AsyncIterable<Uint8Array>,
    signal?: AbortSignal,
    giveWay?: GiveWay,
  ): Promise<{ readonly bytes: number }> {
    const place = this.#place(key);
    const name = this.#name(key);
    signal?.throwIfAborted();
    const source = new CountedSource(content);
    const aborting = new AbortController();
    const upload = new Upload({
      client: this.#client,
      params: {
        Bucket: this.#bucket,
        Key: name,
        Body: Readable.from(source.bytesOf(), { objectMode: false }),
        ChecksumAlgorithm: 'SHA256',
      },
      partSize: PIECE_BYTES,
      queueSize: PIECES_AT_ONCE,
      leavePartsOnError: false,
      abortController: aborting,
    });
    const watchdog = new Watchdog(this.#limits.callMs, () => aborting.abort(storeFailure('hanging', place)));
    const onAbort = () => aborting.abort(signal?.reason);
    signal?.addEventListener('abort', onAbort, { once: true });
    upload.on('httpUploadProgress', () => watchdog.touch());
    // A slow source is no fault of the store. Requests that hang meanwhile have a time limit of their own.
    source.onWait = () => watchdog.stop();
    source.onChunk = () => watchdog.touch();
    if (giveWay !== undefined) {
      this.#givingWay.set(name, async () => {
        source.onWait();
        await giveWay().finally(() => source.onChunk());
      });
    }
    try {
      await upload.done();
    } catch (thrown) {
      if (source.failure !== undefined) throw source.failure.cause;
      throw aborting.signal.aborted ? aborting.signal.reason : typed(thrown, place);
    } finally {
      this.#givingWay.delete(name);
      source.onChunk = () => {};
      watchdog.stop();
      signal?.removeEventListener('abort', onAbort);
    }
    const { bytes } = source;
    const there = await this.head(key, signal);
    if (there === undefined) throw storeFailure('missing', place, { why: 'although it took the upload' });
    if (there.bytes !== bytes)
      throw storeFailure('half_written', place, { why: `${there.bytes} of ${bytes} bytes` });
    return { bytes };
  }

  async *get(key: string, signal?: AbortSignal): AsyncGenerator<Buffer> {
    const place = this.#place(key);
    const command = new GetObjectCommand({ Bucket: this.#bucket, Key: this.#name(key) });
    const ended = new AbortController();
    const either = signal === undefined ? ended.signal : AbortSignal.any([signal, ended.signal]);
    try {
      const { Body: body, ContentLength: announced } = await this.#call(place, signal, () =>
        this.#client.send(command, { abortSignal: either }),
      );
      let bytes = 0;
      try {
        for await (const chunk of atLeastAsFast(body as Readable, this.#limits, place, signal)) {
          bytes += chunk.length;
          yield chunk;
        }
      } catch (thrown) {
        // Errors while the body is read are errors of the connection.
        if (thrown instanceof TorporError || signal?.aborted === true) throw thrown;
        throw storeFailure('cut', place, { why: `after ${bytes} of ${announced} bytes`, cause: thrown });
      }
      if (announced !== undefined && bytes !== announced)
        throw storeFailure('cut', place, { why: `${bytes} of ${announced} bytes` });
    } finally {
      ended.abort();
    }
  }

  async head(key: string, signal?: AbortSignal): Promise<{ readonly bytes: number } | undefined> {
    const place = this.#place(key);
    const command = new HeadObjectCommand({ Bucket: this.#bucket, Key: this.#name(key) });
    try {
      const { ContentLength } = await this.#call(place, signal, (abortSignal) =>
        this.#client.send(command, { abortSignal }),
      );
      return { bytes: ContentLength ?? 0 };
    } catch (thrown) {
      if (faultOf(thrown) !== 'missing') throw thrown;
      await this.#requireBucket(signal);
      return undefined;
    }
  }

  async *list(prefix: string, signal?: AbortSignal): AsyncGenerator<ListedObject> {
    const place = { store: this.url, bucket: this.#bucket };
    let after: string | undefined;
    do {
      const command = new ListObjectsV2Command({
        Bucket: this.#bucket,
        Prefix: `${this.#prefix}${prefix}`,
        ...(after === undefined ? {} : { ContinuationToken: after }),
      });
      const page = await this.#call(place, signal, (abortSignal) =>
        this.#client.send(command, { abortSignal }),
      );
      for (const { Key = '', Size = 0 } of page.Contents ?? [])
        yield { key: Key.slice(this.#prefix.length), bytes: Size };
      after = page.IsTruncated === true ? page.NextContinuationToken : undefined;
    } while (after !== undefined);
  }

  async delete(key: string, signal?: AbortSignal): Promise<void> {
    const place = this.#place(key);
    const Key = this.#name(key);
    await this.#call(place, signal, (abortSignal) =>
      this.#client.send(new DeleteObjectCommand({ Bucket: this.#bucket, Key }), { abortSignal }),
    );
    const listed = new ListMultipartUploadsCommand({ Bucket: this.#bucket, Prefix: Key });
    const { Uploads = [] } = await this.#call(place, signal, (abortSignal) =>
      this.#client.send(listed, { abortSignal }),
    );
    for (const { Key: found, UploadId } of Uploads) {
      if (found !== Key || UploadId === undefined) continue;
      const abort = new AbortMultipartUploadCommand({ Bucket: this.#bucket, Key, UploadId });
      await this.#call(place, signal, (abortSignal) => this.#client.send(abort, { abortSignal })).catch(
        (thrown: unknown) => {
          // Another call has ended this upload meanwhile.
          if (faultOf(thrown) !== 'missing') throw thrown;
        },
      );
    }
  }

  /** The answer to HEAD has no body that says whether the object or the whole bucket is missing. */
  async #requireBucket(signal: AbortSignal | undefined): Promise<void> {
    const place = { store: this.url, bucket: this.#bucket };
    const command = new ListObjectsV2Command({ Bucket: this.#bucket, Prefix: this.#prefix, MaxKeys: 1 });
    await this.#call(place, signal, (abortSignal) => this.#client.send(command, { abortSignal }));
  }

  async #call<T>(
    place: StorePlace,
    signal: AbortSignal | undefined,
    work: (signal: AbortSignal) => Promise<T>,
  ): Promise<T> {
    try {
      return await withinLimit(this.#limits.callMs, place, signal, work);
    } catch (thrown) {
      throw signal?.aborted === true ? signal.reason : typed(thrown, place);
    }
  }

  #name(key: string): string {
    return `${this.#prefix}${checkedKey(key)}`;
  }

  #place(key: string): StorePlace {
    return { store: this.url, bucket: this.#bucket, key: this.#name(key) };
  }
}

/** Counts what is sent, and remembers when the content itself could not be read. */
class CountedSource {
  readonly #content: AsyncIterable<Uint8Array>;
  #bytes = 0;
  failure: { readonly cause: unknown } | undefined;
  onWait: () => void = () => {};
  onChunk: () => void = () => {};

  constructor(content: AsyncIterable<Uint8Array>) {
    this.#content = content;
  }

  async *bytesOf(): AsyncGenerator<Buffer> {
    const source = this.#content[Symbol.asyncIterator]();
    try {
      for (;;) {
        const next = await this.#next(source);
        if (next.done === true) return;
        this.#bytes += next.value.byteLength;
        yield Buffer.from(next.value.buffer, next.value.byteOffset, next.value.byteLength);
      }
    } finally {
      await source.return?.();
    }
  }

  async #next(source: AsyncIterator<Uint8Array>): Promise<IteratorResult<Uint8Array>> {
    this.onWait();
    try {
      return await source.next();
    } catch (cause) {
      this.failure = { cause };
      throw cause;
    } finally {
      this.onChunk();
    }
  }

  get bytes(): number {
    return this.#bytes;
  }
}

/** The names that S3 and the services that imitate it give to errors. */
const FAULT_BY_NAME: Readonly<Record<string, StoreFault>> = {
  NoSuchKey: 'missing',
  NotFound: 'missing',
  NoSuchUpload: 'missing',
  NoSuchBucket: 'no_bucket',
  PermanentRedirect: 'no_bucket',
  AccessDenied: 'refusing',
  Forbidden: 'refusing',
  InvalidAccessKeyId: 'refusing',
  SignatureDoesNotMatch: 'refusing',
  ExpiredToken: 'refusing',
  CredentialsProviderError: 'no_credentials',
  RequestTimeTooSkewed: 'clock_skew',
  TimeoutError: 'hanging',
  QuotaExceeded: 'full',
  InsufficientStorage: 'full',
  // The service found other bytes than were sent.
  BadDigest: 'cut',
  XAmzContentChecksumMismatch: 'cut',
  IncompleteBody: 'cut',
};

const FAULT_BY_STATUS: Readonly<Record<number, StoreFault>> = {
  401: 'refusing',
  403: 'refusing',
  404: 'missing',
  408: 'hanging',
  507: 'full',
};

function typed(thrown: unknown, place: StorePlace): unknown {
  if (thrown instanceof TorporError || !(thrown instanceof Error)) return thrown;
  const { name, message, $metadata, code } = thrown as Error & {
    readonly $metadata?: { readonly httpStatusCode?: number };
    readonly code?: string;
  };
  const status = $metadata?.httpStatusCode;
  const fault =
    FAULT_BY_NAME[name] ?? (status === undefined ? 'unreachable' : (FAULT_BY_STATUS[status] ?? 'failing'));
  const why = code ?? ([status, name].filter((word) => word !== undefined).join(' ') || message);
  return storeFailure(fault, place, { why, cause: thrown });
}
