/** Names of the temporary files that uploads are written to. */

const PREFIX = '.torpor-upload-';

export function uploadName(id: string): string {
  return PREFIX + id;
}

/** Watches do not report such a name. */
export function isUploadInProgress(name: string): boolean {
  return name.startsWith(PREFIX);
}
