/**
 * Traces of requests and operations, off unless the environment asks for them. The library of OpenTelemetry is loaded only
 * then, so that a server without it starts as fast and takes as little memory as before.
 */
import type { IncomingHttpHeaders } from 'node:http';
import { noTracing, type Report, type Span, type SpanAttributes, type Tracing } from '@torpor/engine';
import { TorporError } from '@torpor/protocol';

export interface ServerTracing extends Tracing {
  /** Begins the span of a request, within the trace of the caller if a header `traceparent` names one. */
  beginRequest(headers: IncomingHttpHeaders, began: Date, name: string, attributes: SpanAttributes): Span;
  /** Sends what is left, within a bound. */
  stop(): Promise<void>;
}

/** Nothing is traced. */
export const tracingOff: ServerTracing = {
  ...noTracing,
  beginRequest: () => noTracing.begin(''),
  stop: async () => {},
};

export interface TracingOptions {
  /** The version of this server. */
  readonly version: string;
  readonly serverId: string;
  readonly report: Report;
}

export async function openTracing(env: NodeJS.ProcessEnv, options: TracingOptions): Promise<ServerTracing> {
  if (!wantsTraces(env)) return tracingOff;
  const { openOtelTracing } = await import('./otel-tracing.ts');
  return openOtelTracing(env, options);
}

function wantsTraces(env: NodeJS.ProcessEnv): boolean {
  if (env['OTEL_SDK_DISABLED']?.trim().toLowerCase() === 'true') return false;
  const exporter = env['OTEL_TRACES_EXPORTER']?.trim() || undefined;
  if (exporter === 'none') return false;
  if (exporter !== undefined && exporter !== 'otlp') {
    throw new TorporError('invalid_request', `OTEL_TRACES_EXPORTER: "${exporter}" is not supported.`, {
      hint: 'Use otlp or none.',
    });
  }
  const endpoint = env['OTEL_EXPORTER_OTLP_TRACES_ENDPOINT'] || env['OTEL_EXPORTER_OTLP_ENDPOINT'];
  return exporter === 'otlp' || Boolean(endpoint);
}
