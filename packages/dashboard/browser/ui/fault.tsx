/** An error for people: what happened, what to do, and the id that finds it in the server's log. */
import { ApiError, isTransportFault } from '@torpor/sdk';

export interface Fault {
  readonly message: string;
  readonly hint?: string | undefined;
  readonly requestId?: string | undefined;
}

export function faultOf(thrown: unknown): Fault {
  if (thrown instanceof ApiError) {
    const { message, hint, requestId } = thrown;
    return { message, hint, requestId: requestId ?? undefined };
  }
  if (isTransportFault(thrown)) {
    return {
      message: 'The server cannot be reached.',
      hint: 'Is it running? This page tries again by itself.',
    };
  }
  return { message: thrown instanceof Error ? thrown.message : String(thrown) };
}

export function FaultNotice({ error, retry }: { readonly error: unknown; readonly retry?: () => void }) {
  const { message, hint, requestId } = faultOf(error);
  return (
    <div class="notice bad" role="alert">
      <strong>{message}</strong>
      {hint !== undefined && <span>{hint}</span>}
      {requestId !== undefined && <span class="small quiet mono">{requestId}</span>}
      {retry !== undefined && (
        <span>
          <button type="button" class="button small" onClick={retry}>
            Try again
          </button>
        </span>
      )}
    </div>
  );
}
