/** Which addresses webhooks may be sent to. */
import { type AddressCheckOptions, AddressCheck as Check } from '@torpor/network/address-check';
import { TorporError } from '@torpor/protocol';

export { isNetwork } from '@torpor/network/address-check';

export class AddressCheck extends Check {
  constructor(options: Omit<AddressCheckOptions, 'refused'>) {
    super({ ...options, refused });
  }
}

function refused(why: string): TorporError {
  return new TorporError('forbidden', `Webhooks are not sent there: ${why}.`, {
    hint: 'Use a public IPv4 address. The operator of the server can allow networks with --webhook-networks.',
  });
}
