export * from './agent-errors.ts';
export * from './connect-agent.ts';
export * from './gen/filesystem/filesystem_pb.js';
export * from './gen/process/process_pb.js';
export * from './gen/torpor/agent_pb.js';
export * from './signature.ts';
export type { TurnReceipt, TurnRequest } from './turns.ts';
export * from './wire-names.ts';
