export * from './ask.ts';
export * from './fake-sandboxes.ts';
export * from './gateway-world.ts';
export * from './hop-world.ts';
export * from './raw-client.ts';
