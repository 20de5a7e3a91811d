/** A way to the app. */
export interface Way {
  readonly name: string;
  readonly address: string;
  readonly port: number;
  /** The `Host` that leads to the app. */
  readonly host: string;
}
