/** An address at which the load generators reach the app. */
export interface Target {
  readonly name: string;
  readonly address: string;
  readonly port: number;
  /** The `Host` header that leads to the app. */
  readonly host: string;
}
