import { TorporError } from '@torpor/protocol';

export function badCursor(id: string): TorporError {
  return new TorporError('invalid_request', `The cursor ${id} is not the nextCursor of a page of this list.`);
}
