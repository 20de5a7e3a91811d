export { encryptionKey } from './encrypted-value.ts';
export { type RuleSecret, Secrets } from './secrets.ts';
