/**
 * Traces by the SDK of OpenTelemetry, sent over OTLP in batches. A collector that is down costs the spans that do not fit
 * into the queue, and one warning a minute.
 */
import {
  type Context,
  type Span as OtelSpan,
  ROOT_CONTEXT,
  SpanKind,
  SpanStatusCode,
  trace,
} from '@opentelemetry/api';
import { setGlobalErrorHandler, W3CTraceContextPropagator } from '@opentelemetry/core';
import {
  defaultResource,
  detectResources,
  envDetector,
  resourceFromAttributes,
} from '@opentelemetry/resources';
import { BatchSpanProcessor, type SpanExporter, TracerProvider } from '@opentelemetry/sdk-trace';
import { type Report, type Span, type SpanAttributes, systemClock, withTimeout } from '@torpor/engine';
import { batchesOf, type Environment, limitsOf, protocolOf, samplerOf } from './otel-environment.ts';
import type { ServerTracing, TracingOptions } from './tracing.ts';

/** How long a stop waits for the collector. */
const FLUSH_MS = 1_000;
const WARNING_EVERY_MS = 60_000;

export async function openOtelTracing(
  env: Environment,
  { version, serverId, report }: TracingOptions,
): Promise<ServerTracing> {
  const sampler = samplerOf(env);
  const processor = new BatchSpanProcessor({
    ...batchesOf(env),
    exporter: await exporterFor(protocolOf(env)),
  });
  warnAtMostOnceAMinute(report);
  const provider = new TracerProvider({
    sampler,
    spanLimits: limitsOf(env),
    spanProcessors: [processor],
    resource: defaultResource()
      .merge(
        resourceFromAttributes({
          'service.name': 'torpor',
          'service.version': version,
          'service.instance.id': serverId,
        }),
      )
      // OTEL_SERVICE_NAME and OTEL_RESOURCE_ATTRIBUTES come last, so that they win.
      .merge(detectResources({ detectors: [envDetector] })),
  });
  const tracer = provider.getTracer('torpor', version);
  const propagator = new W3CTraceContextPropagator();
  const begin = (
    parent: Context,
    name: string,
    attributes: SpanAttributes = {},
    options: { readonly kind?: SpanKind; readonly startTime?: Date } = {},
  ): Span => {
    const span = tracer.startSpan(name, { ...options, attributes: defined(attributes) }, parent);
    return toSpan(span, (child, more) => begin(trace.setSpan(ROOT_CONTEXT, span), child, more));
  };
  return {
    enabled: true,
    begin: (name, attributes) => begin(ROOT_CONTEXT, name, attributes),
    beginRequest: (headers, startTime, name, attributes) => {
      const caller = propagator.extract(ROOT_CONTEXT, headers, {
        get: (carrier, key) => carrier[key],
        keys: (carrier) => Object.keys(carrier),
      });
      return begin(caller, name, attributes, { kind: SpanKind.SERVER, startTime });
    },
    stop: () =>
      withTimeout(systemClock, FLUSH_MS, 'Sending the last traces', () => provider.shutdown()).catch(
        (error: unknown) => report('the last traces could not be sent', { error }),
      ),
  };
}

/** Only the exporter of the protocol in use is loaded. */
async function exporterFor(protocol: ReturnType<typeof protocolOf>): Promise<SpanExporter> {
  const { OTLPTraceExporter } =
    protocol === 'http/json'
      ? await import('@opentelemetry/exporter-trace-otlp-http')
      : await import('@opentelemetry/exporter-trace-otlp-proto');
  return new OTLPTraceExporter();
}

function toSpan(span: OtelSpan, begin: Span['begin']): Span {
  return {
    begin,
    set: (attributes) => void span.setAttributes(defined(attributes)),
    end: (error) => {
      if (error !== undefined) {
        span.setAttribute('error.type', error.code);
        span.setStatus({ code: SpanStatusCode.ERROR, message: error.message });
      }
      span.end();
    },
  };
}

function defined(attributes: SpanAttributes) {
  return Object.fromEntries(Object.entries(attributes).filter(([, value]) => value !== undefined));
}

/** The SDK calls this handler for each batch that it could not send. */
function warnAtMostOnceAMinute(report: Report): void {
  let last = Number.NEGATIVE_INFINITY;
  setGlobalErrorHandler((error) => {
    const now = systemClock.monotonic();
    if (now - last < WARNING_EVERY_MS) return;
    last = now;
    report('traces could not be sent', { error });
  });
}
