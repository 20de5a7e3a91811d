export * from './capabilities.ts';
export * from './errors.ts';
export * from './events.ts';
export * from './ids.ts';
export * from './openapi.ts';
export * from './requests.ts';
export * from './states.ts';
export * from './views.ts';
