/** Every bound of the gateway, in milliseconds where it is a time (R113). */
export interface GatewaySettings {
  /** How long a request may wait for its sandbox and its port. */
  readonly holdMs: number;
  /** How long a person looks at an empty tab before the waiting page comes. */
  readonly momentMs: number;
  /** How long a wake may take before the gateway looks at the sandbox afresh. */
  readonly wakeMs: number;
  /** A wake that failed is not tried again for the next request within this time. */
  readonly failureMs: number;
  /** A look at a sandbox that is changing is repeated after this long. */
  readonly lookAgainMs: number;
  readonly heldPerSandbox: number;
  readonly heldOverall: number;
  /** What held requests may keep in memory: their heads, and what Node has read of their bodies. */
  readonly heldBytesPerSandbox: number;
  readonly heldBytesOverall: number;
  /** Requests and sockets under way to one sandbox. */
  readonly passingPerSandbox: number;
  /** How long opening one connection to a port may take. */
  readonly connectMs: number;
  /** Connections that are being opened to one port at once. */
  readonly connectingAtOnce: number;
  /** A connection that its server makes no promise about is used again only within this time. */
  readonly idleConnectionMs: number;
  /** The longest time that a connection is kept for, whatever its server promises. */
  readonly idleConnectionMaxMs: number;
  /** A service that was declared may take this long after a start until its port opens. */
  readonly startingMs: number;
  /** A port that is closed gets this long when there is reason to hope: just woken, or a declared service. */
  readonly portGraceMs: number;
  /** No bytes for this long, and a stream no longer holds its sandbox awake. */
  readonly quietMs: number;
  /** A stream that was quiet for this long is not waited for before a pause. */
  readonly drainQuietMs: number;
  /** How long the other side may take to say goodbye on a WebSocket that we close. */
  readonly goodbyeMs: number;
  /** What an answer's head may have at most. */
  readonly maxHeadBytes: number;
  /** How long a one-time link is good for. */
  readonly linkMs: number;
  /** How long a browser stays let in after it. */
  readonly cookieMs: number;
}

export const DEFAULT_GATEWAY_SETTINGS: GatewaySettings = {
  holdMs: 60_000,
  momentMs: 900,
  wakeMs: 120_000,
  failureMs: 1_000,
  lookAgainMs: 50,
  heldPerSandbox: 512,
  heldOverall: 4_096,
  heldBytesPerSandbox: 16 * 1024 * 1024,
  heldBytesOverall: 128 * 1024 * 1024,
  passingPerSandbox: 2_048,
  connectMs: 5_000,
  connectingAtOnce: 32,
  idleConnectionMs: 1_000,
  idleConnectionMaxMs: 30_000,
  startingMs: 60_000,
  portGraceMs: 2_000,
  quietMs: 5_000,
  drainQuietMs: 1_000,
  goodbyeMs: 3_000,
  maxHeadBytes: 64 * 1024,
  linkMs: 10 * 60_000,
  cookieMs: 7 * 24 * 3_600_000,
};
