//! Plans a reset, which lists what it would forget, and does it.

use crate::checkpoint::{FileRecord, Selector};
use crate::crash::CrashPoint;
use crate::error::Result;
use crate::landing::decode_name;
use crate::protocol::Pipeline;
use std::collections::BTreeSet;
use std::fs;

/// What a reset would forget.
#[derive(Clone, Debug, Default)]
pub struct ResetPlan {
    /// Files that are loaded again by the next run, with those that were skipped as their duplicates.
    pub files: Vec<FileRecord>,
    /// Files that match and stay as they are, since their source file is gone; their rows stay too.
    pub gone: Vec<FileRecord>,
}

impl Pipeline {
    /// Lists the files that `selector` names. Changes nothing.
    pub fn plan_reset(&self, selector: &Selector) -> Result<ResetPlan> {
        let mut plan = ResetPlan::default();
        for file in self.checkpoint.reset_candidates(selector)? {
            let source = self.settings.source.path.join(decode_name(&file.path));
            let is_there = fs::symlink_metadata(source).is_ok_and(|metadata| metadata.is_file());
            if is_there {
                plan.files.push(file)
            } else {
                plan.gone.push(file)
            }
        }
        // Where a source is gone its rows may be needed, so the next run tells about it.
        let duplicates = self.checkpoint.duplicates_of(&plan.files)?;
        let along: BTreeSet<&str> = duplicates.iter().map(|file| file.path.as_str()).collect();
        plan.gone.retain(|file| !along.contains(file.path.as_str()));
        plan.files.extend(duplicates);
        plan.files.sort_by(|left, right| left.path.cmp(&right.path));
        Ok(plan)
    }

    /// Forgets the files of a plan. Their rows stay in bronze until the commit that brings the new ones.
    ///
    /// If the process stops inside, either all are forgotten or none.
    pub fn reset(&mut self, plan: &ResetPlan) -> Result<()> {
        let paths: Vec<String> = plan.files.iter().map(|file| file.path.clone()).collect();
        if !paths.is_empty() {
            self.checkpoint.reset(&paths)?;
        }
        self.crash.reach(CrashPoint::AfterReset)
    }
}
