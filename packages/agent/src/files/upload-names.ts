/** The names under which uploads are written before they are complete. */

const PREFIX = '.torpor-upload-';

export function uploadName(id: string): string {
  return PREFIX + id;
}

/** Such a name is nobody's news. */
export function isUploadInProgress(name: string): boolean {
  return name.startsWith(PREFIX);
}
