export type { Limits } from './limits.ts';
export { serveHttp } from './serve-http.ts';
export { serveStdio } from './serve-stdio.ts';
export { type Endpoint, openEndpoint } from './server-endpoint.ts';
