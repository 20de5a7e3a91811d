/**
 * The variables of OpenTelemetry that its trace SDK leaves to the program: protocol, sampler, batches and limits. The
 * exporter and the resource read theirs themselves (endpoint, headers, timeout, compression, certificates, service name).
 */
import {
  AlwaysOffSampler,
  AlwaysOnSampler,
  type BatchSpanProcessorOptions,
  ParentBasedSampler,
  type Sampler,
  type SpanLimits,
  TraceIdRatioBasedSampler,
} from '@opentelemetry/sdk-trace';
import { TorporError } from '@torpor/protocol';

export type Environment = Readonly<Record<string, string | undefined>>;

const PROTOCOLS = ['http/protobuf', 'http/json'] as const;

export function protocolOf(env: Environment): (typeof PROTOCOLS)[number] {
  const name = 'OTEL_EXPORTER_OTLP_PROTOCOL';
  const text = env['OTEL_EXPORTER_OTLP_TRACES_PROTOCOL'] || env[name] || PROTOCOLS[0];
  const found = PROTOCOLS.find((known) => known === text.trim());
  if (found === undefined) throw invalid(name, text, `Use one of ${PROTOCOLS.join(', ')}.`);
  return found;
}

const SAMPLERS: Readonly<Record<string, (ratio: number) => Sampler>> = {
  always_on: () => new AlwaysOnSampler(),
  always_off: () => new AlwaysOffSampler(),
  traceidratio: (ratio) => new TraceIdRatioBasedSampler(ratio),
  parentbased_always_on: () => new ParentBasedSampler({ root: new AlwaysOnSampler() }),
  parentbased_always_off: () => new ParentBasedSampler({ root: new AlwaysOffSampler() }),
  parentbased_traceidratio: (ratio) => new ParentBasedSampler({ root: new TraceIdRatioBasedSampler(ratio) }),
};

export function samplerOf(env: Environment): Sampler {
  const name = env['OTEL_TRACES_SAMPLER']?.trim() || 'parentbased_always_on';
  const make = Object.hasOwn(SAMPLERS, name) ? SAMPLERS[name] : undefined;
  if (make === undefined)
    throw invalid('OTEL_TRACES_SAMPLER', name, `Use one of ${Object.keys(SAMPLERS).join(', ')}.`);
  const ratio = numberOf(env, 'OTEL_TRACES_SAMPLER_ARG') ?? 1;
  if (ratio > 1) throw invalid('OTEL_TRACES_SAMPLER_ARG', String(ratio), 'Use a number from 0 to 1.');
  return make(ratio);
}

export function batchesOf(env: Environment): Omit<BatchSpanProcessorOptions, 'exporter'> {
  return withoutUndefined({
    scheduledDelayMillis: numberOf(env, 'OTEL_BSP_SCHEDULE_DELAY'),
    exportTimeoutMillis: numberOf(env, 'OTEL_BSP_EXPORT_TIMEOUT'),
    maxQueueSize: numberOf(env, 'OTEL_BSP_MAX_QUEUE_SIZE'),
    maxExportBatchSize: numberOf(env, 'OTEL_BSP_MAX_EXPORT_BATCH_SIZE'),
  });
}

export function limitsOf(env: Environment): SpanLimits {
  return withoutUndefined({
    attributeCountLimit:
      numberOf(env, 'OTEL_SPAN_ATTRIBUTE_COUNT_LIMIT') ?? numberOf(env, 'OTEL_ATTRIBUTE_COUNT_LIMIT'),
    attributeValueLengthLimit:
      numberOf(env, 'OTEL_SPAN_ATTRIBUTE_VALUE_LENGTH_LIMIT') ??
      numberOf(env, 'OTEL_ATTRIBUTE_VALUE_LENGTH_LIMIT'),
  });
}

function numberOf(env: Environment, name: string): number | undefined {
  const text = env[name]?.trim() || undefined;
  if (text === undefined) return undefined;
  const value = Number(text);
  if (!Number.isFinite(value) || value < 0) throw invalid(name, text, 'Use a number that is not negative.');
  return value;
}

type Defined<T> = { [K in keyof T]?: Exclude<T[K], undefined> };

function withoutUndefined<T extends object>(given: T): Defined<T> {
  return Object.fromEntries(Object.entries(given).filter(([, value]) => value !== undefined)) as Defined<T>;
}

function invalid(name: string, value: string, hint: string): TorporError {
  return new TorporError('invalid_request', `${name}: "${value}" is not supported.`, { hint });
}
