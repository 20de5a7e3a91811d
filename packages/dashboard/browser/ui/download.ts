/** Gives bytes or text to the user as a file. The browser shows nothing of it: it is only saved. */
export function saveAs(name: string, ...contents: readonly (Uint8Array | string)[]): void {
  const url = URL.createObjectURL(new Blob(contents as BlobPart[], { type: 'application/octet-stream' }));
  const link = document.createElement('a');
  link.href = url;
  link.download = name;
  link.click();
  // The browser has taken the bytes by the next task.
  setTimeout(() => URL.revokeObjectURL(url), 1_000);
}
