/** How a client reaches the app: directly, through the gateway or through nginx. */
export interface AppAddress {
  readonly name: string;
  readonly address: string;
  readonly port: number;
  /** The `Host` header of the requests. */
  readonly host: string;
}
