/** The files of a sandbox as responses show them. Contents are transferred as plain bytes. */
import { z } from 'zod';

export const fileEntrySchema = z
  .object({
    name: z.string(),
    path: z.string(),
    type: z.enum(['file', 'directory', 'symlink', 'other']),
    size: z.number().int(),
    mode: z.number().int(),
    owner: z.string(),
    group: z.string(),
    modifiedAt: z.number().int().nullable(),
    symlinkTarget: z.string().nullable(),
  })
  .meta({ id: 'FileEntry' });
export type FileEntry = z.infer<typeof fileEntrySchema>;

export const directoryListingSchema = z
  .object({ path: z.string(), entries: z.array(fileEntrySchema) })
  .meta({ id: 'DirectoryListing' });
export type DirectoryListing = z.infer<typeof directoryListingSchema>;

export const writtenFileSchema = z.object({ path: z.string(), name: z.string() }).meta({ id: 'WrittenFile' });
export type WrittenFile = z.infer<typeof writtenFileSchema>;
