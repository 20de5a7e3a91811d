export {
  type Actor,
  ANSWERED_BY_HEADER,
  type AnyJobView,
  type AuditEntry,
  type AwakeSandbox,
  type BuildCancelled,
  type BuildDocs,
  type BuildEvent,
  type BuildFile,
  type BuildLogLine,
  type BuildLogPage,
  type BuildRequest,
  type BuildResumed,
  type BuildSnapshot,
  type BuildStarted,
  type BuildState,
  type BuildStatus,
  type CheckpointId,
  type CheckpointView,
  type CreatedWebhook,
  type CreateRequest,
  type CreateTemplateRequest,
  type CreateWebhookRequest,
  type DeadLetter,
  type DirectoryListing,
  type DiskView,
  type DoctorReport,
  type DriveView,
  ERROR_CODES,
  type ErrorCode,
  type EventFilter,
  type EventView,
  type ExecReply,
  type ExecSocketRequest,
  type Fallback,
  type FileEntry,
  type ForgottenNode,
  type ForkRequest,
  type Health,
  type IdentityView,
  type ImageTemplateRequest,
  type JobId,
  type JobLoss,
  type JobState,
  type Loss,
  type MachineCheck,
  type MachineView,
  type Network,
  type NodeView,
  type OperationId,
  type OperationView,
  type OrgDetails,
  type OrgView,
  type PageLink,
  type PageLinkRequest,
  type PauseRequest,
  type PortView,
  type PreviewLink,
  type PreviewLinkRequest,
  type ProcessView,
  type PutToSleepReply,
  type Quotas,
  type Resources,
  type ResumeRequest,
  type RuntimeView,
  type SandboxHealth,
  type SandboxId,
  type SandboxMetrics,
  type SandboxState,
  type SandboxView,
  type SecretUse,
  type SecretView,
  type Service,
  type SessionChange,
  type SessionId,
  type SessionView,
  type SessionWake,
  type SetSecretRequest,
  type SettingView,
  type SignedIn,
  type SignInRequest,
  type SnapshotRequest,
  type TemplateView,
  TorporError,
  type TrackedJobView,
  type TurnId,
  type TurnReply,
  type TurnState,
  type TurnView,
  type UsageView,
  type VerifiedCheckpointView,
  type WebhookId,
  type WebhookTest,
  type WebhookView,
  type WrittenFile,
} from '@torpor/protocol';
export type { Builds, LogPageOptions } from './builds.ts';
export * from './client.ts';
export * from './errors.ts';
export type { FollowOptions } from './event-stream.ts';
export type { Command, ExecEvent } from './exec.ts';
export type { FileChangeOptions, FileOptions, FileReadOptions, Files } from './files.ts';
export type { EndJobOptions, JobFilter, Jobs, SandboxJobs } from './jobs.ts';
export type { CallOptions, MutationOptions, ReadOptions } from './json-calls.ts';
export type { OperationFilter } from './operations.ts';
export type { OutputEvent, OutputOptions } from './output.ts';
export type { PageSessions } from './page-sessions.ts';
export type { Page, PageOptions } from './pages.ts';
export type { PortRequest } from './port-fetch.ts';
export type { ProcessEvent, ProcessSocket, SocketOptions, TerminalOptions } from './process-socket.ts';
export type { Backoff, Pace } from './retry.ts';
export type { Execution } from './sandbox/execution.ts';
export { PartialForkError } from './sandbox/partial-fork-error.ts';
export { type ConnectOptions, Sandbox } from './sandbox/sandbox.ts';
export type { ServiceView } from './sandbox/services.ts';
export type { PauseReply, ResumeReply, SandboxFilter } from './sandboxes.ts';
export type { Secrets } from './secrets.ts';
export type { Session, SessionFilter, SessionOptions } from './sessions.ts';
export type { ArchiveTemplateRequest } from './templates.ts';
export { DEFAULT_URL, gatewayErrorOf, type TransportOptions } from './transport.ts';
export { isTransportFault } from './transport-fault.ts';
export type { TurnEvent } from './turn-stream.ts';
export { type VerifyOptions, verifyWebhook, type WebhookRequest } from './verify-webhook.ts';
export type { Webhooks } from './webhooks.ts';
