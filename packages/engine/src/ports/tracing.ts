/** The port to tracing: spans that show how long each part of a request or an operation took. It never fails. */

/** An attribute that is undefined is left out. */
export type SpanAttributes = Readonly<Record<string, string | number | boolean | undefined>>;

export interface Span {
  /** Begins a span within this one. */
  begin(name: string, attributes?: SpanAttributes): Span;
  set(attributes: SpanAttributes): void;
  /** Ends the span. With an error it is marked as failed. */
  end(error?: { readonly code: string; readonly message: string }): void;
}

export interface Tracing {
  /** Whether spans are kept. Callers skip work that only finds out attributes otherwise. */
  readonly enabled: boolean;
  /** Begins the first span of a new trace. */
  begin(name: string, attributes?: SpanAttributes): Span;
}

const noSpan: Span = { begin: () => noSpan, set: () => {}, end: () => {} };

export const noTracing: Tracing = { enabled: false, begin: () => noSpan };
