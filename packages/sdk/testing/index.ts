export * from './api-server.ts';
export * from './views.ts';
