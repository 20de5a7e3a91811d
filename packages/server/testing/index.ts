export * from './agent-runtime.ts';
export * from './test-server.ts';
