/** The files that were dropped on the page, also those in dropped directories. */
export interface DroppedFile {
  /** Relative to where it is dropped, as `site/index.html`. */
  readonly path: string;
  readonly file: File;
}

/** Must be called while the event is handled: the browser forgets the files afterwards. */
export async function droppedFiles(transfer: DataTransfer | null): Promise<DroppedFile[]> {
  const items = [...(transfer?.items ?? [])].map((item) => ({
    entry: item.webkitGetAsEntry(),
    file: item.getAsFile(),
  }));
  const found = await Promise.all(
    items.map(({ entry, file }) => {
      if (entry !== null) return filesOf(entry, '');
      return file === null ? [] : [{ path: file.name, file }];
    }),
  );
  return found.flat();
}

async function filesOf(entry: FileSystemEntry, parent: string): Promise<DroppedFile[]> {
  const path = `${parent}${entry.name}`;
  // Chromium does not define the classes of these entries under their names.
  if (entry.isDirectory) {
    const inside = await entriesOf(entry as FileSystemDirectoryEntry);
    const found = await Promise.all(inside.map((one) => filesOf(one, `${path}/`)));
    return found.flat();
  }
  const file = await new Promise<File>((resolve, reject) => {
    (entry as FileSystemFileEntry).file(resolve, reject);
  });
  return [{ path, file }];
}

/** A browser tells at most a hundred entries at once, and none at the end. */
async function entriesOf(directory: FileSystemDirectoryEntry): Promise<FileSystemEntry[]> {
  const reader = directory.createReader();
  const all: FileSystemEntry[] = [];
  for (;;) {
    const some = await new Promise<FileSystemEntry[]>((resolve, reject) => {
      reader.readEntries(resolve, reject);
    });
    if (some.length === 0) return all;
    all.push(...some);
  }
}
