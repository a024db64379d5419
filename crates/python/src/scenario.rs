use crate::error;
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyList};
use std::path::{Path, PathBuf};
use steadycast_scenario::{Document, FlowKind, Fps, Loaded, Media, Problem, Problems, Redraw, Scenario};

/// Returns the JSON Schema of the scenario format.
#[pyfunction]
pub(crate) fn schema() -> String {
    steadycast_scenario::schema().to_string()
}

/// Returns the JSON Schema of the experiment format.
#[pyfunction]
pub(crate) fn experiment_schema() -> String {
    steadycast_scenario::experiment_schema().to_string()
}

/// Reads the text of an experiment, and returns its content as JSON. `file` is the name of the file in messages. `seed`
/// and `count` replace the seed and the number of random draws. Raises Problems.
#[pyfunction]
#[pyo3(signature = (text, file, seed = None, count = None))]
pub(crate) fn experiment(
    py: Python<'_>,
    text: &str,
    file: &str,
    seed: Option<u64>,
    count: Option<u64>,
) -> PyResult<String> {
    let read = steadycast_scenario::experiment(text, file, Redraw { seed, count });
    read.map(|content| content.to_string()).map_err(|problems| error::problems(py, &problems.0))
}

/// Returns the content of the network with this name, as a TOML table on one line. Paths in it are absolute. The key
/// `flow` contains the TCP flows that the network adds. `folder` is the start of relative paths, and `networks` is the
/// folder in which names are looked up. Raises Problems.
#[pyfunction]
pub(crate) fn network(py: Python<'_>, name: &str, folder: PathBuf, networks: PathBuf) -> PyResult<String> {
    steadycast_scenario::network(name, &folder, &networks).map_err(|problems| error::problems(py, &problems.0))
}

fn load(
    text: Option<&str>,
    json: bool,
    path: &str,
    sets: &[String],
    networks: Option<&Path>,
) -> Result<Loaded, Problems> {
    let origin = Path::new(path);
    let mut document = match (text, json) {
        (None, _) => Document::read(origin)?,
        (Some(text), false) => Document::parse(text, origin)?,
        (Some(text), true) => {
            let value = serde_json::from_str(text).map_err(|e| {
                let what = format!("not JSON: {e}");
                let remedy = "give the scenario as a JSON object".to_owned();
                Problems(vec![Problem { file: path.to_owned(), line: None, key: String::new(), what, remedy }])
            })?;
            Document::from_json(&value, origin)?
        }
    };
    if let Some(networks) = networks {
        document = document.with_networks(networks);
    }
    let mut problems = Vec::new();
    // Collect the problems of all assignments, not only of the first wrong one.
    for set in sets {
        problems.extend(document.set(set).err());
    }
    if !problems.is_empty() {
        return Err(Problems(problems));
    }
    document.check()
}

pub(crate) fn listed<'py>(py: Python<'py>, problems: &[Problem]) -> PyResult<Bound<'py, PyList>> {
    let list = PyList::empty(py);
    for problem in problems {
        let entry = PyDict::new(py);
        entry.set_item("file", &problem.file)?;
        entry.set_item("line", problem.line)?;
        entry.set_item("key", &problem.key)?;
        entry.set_item("what", &problem.what)?;
        entry.set_item("remedy", &problem.remedy)?;
        list.append(entry)?;
    }
    Ok(list)
}

/// A checked scenario.
#[pyclass(frozen, name = "Scenario", module = "steadycast._core")]
pub(crate) struct PyScenario {
    pub(crate) loaded: Loaded,
    /// The name of the scenario's file, for error messages.
    pub(crate) file: String,
}

#[pymethods]
impl PyScenario {
    /// Reads a scenario from the file `path`. If `text` is given, it is used instead of the content of the file. `json`
    /// states whether `text` is JSON instead of TOML. Networks are looked up by name in `networks`. Raises Problems.
    #[new]
    #[pyo3(signature = (path, sets, text=None, json=false, networks=None))]
    fn new(
        py: Python<'_>,
        path: &str,
        sets: Vec<String>,
        text: Option<&str>,
        json: bool,
        networks: Option<PathBuf>,
    ) -> PyResult<Self> {
        let loaded =
            load(text, json, path, &sets, networks.as_deref()).map_err(|problems| error::problems(py, &problems.0))?;
        Ok(Self { loaded, file: path.to_owned() })
    }

    fn __repr__(&self) -> String {
        let scenario = self.scenario();
        format!("Scenario({:?}, seed={}, flows={})", scenario.name, scenario.seed.0, scenario.flows.len())
    }

    /// Returns the scenario as TOML, with all defaults filled in.
    fn toml(&self) -> String {
        self.loaded.resolved_toml()
    }

    /// Returns the scenario's warnings: settings that are valid but probably not intended.
    fn warnings(&self) -> Vec<String> {
        self.loaded.warnings.iter().map(ToString::to_string).collect()
    }

    #[getter]
    fn name(&self) -> &str {
        &self.scenario().name
    }

    #[getter]
    fn seed(&self) -> u64 {
        self.scenario().seed.0
    }

    #[getter]
    fn sha256(&self) -> &str {
        &self.loaded.sha256
    }

    /// The number of flows.
    #[getter]
    fn flows(&self) -> usize {
        self.scenario().flows.len()
    }

    #[getter]
    fn duration_s(&self) -> f64 {
        self.scenario().duration.as_secs_f64()
    }

    /// Returns the expectations of the scenario, as tuples of path, min and max.
    fn expectations(&self) -> Vec<(String, Option<f64>, Option<f64>)> {
        self.scenario().expect.iter().map(|e| (e.that.clone(), e.min, e.max)).collect()
    }

    /// Returns the names of the links whose packets are captured.
    fn captured(&self) -> Vec<String> {
        let scenario = self.scenario();
        scenario.record.pcap.iter().map(|l| scenario.links[l.0 as usize].name.clone()).collect()
    }

    /// Returns the video flows, and for each the inputs that it needs before it can run.
    fn videos<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyList>> {
        let list = PyList::empty(py);
        for flow in &self.scenario().flows {
            let FlowKind::Video(video) = &flow.kind else { continue };
            let entry = PyDict::new(py);
            entry.set_item("flow", &flow.name)?;
            entry.set_item("controller", video.controller.name())?;
            entry.set_item("switching", video.outside_switching())?;
            entry.set_item("playout_s", video.playout.most().map(|p| p.as_secs_f64()))?;
            let receivers: Vec<_> = flow.to.iter().map(|n| self.scenario().node_name(*n)).collect();
            entry.set_item("receivers", receivers)?;
            let path = |p: &Path| p.display().to_string();
            match &video.media {
                Media::Clip { paths } => {
                    entry.set_item("media", "clip")?;
                    entry.set_item("paths", paths.iter().map(|p| path(p)).collect::<Vec<_>>())?;
                }
                Media::Synthetic => entry.set_item("media", "synthetic")?,
                Media::Greedy { .. } => entry.set_item("media", "greedy")?,
                Media::Table2 { weights, vary } => {
                    entry.set_item("media", "table2")?;
                    entry.set_item("weights", weights.to_vec())?;
                    entry.set_item("vary", *vary)?;
                }
                Media::Map001(map) => {
                    entry.set_item("media", "map001")?;
                    entry.set_item("exponent", map.exponent)?;
                    entry.set_item("intra", map.intra)?;
                }
                Media::Trace { path: file } => {
                    entry.set_item("media", "trace")?;
                    entry.set_item("paths", vec![path(file)])?;
                }
                Media::Rfc8593 { frames, .. } => {
                    entry.set_item("media", "rfc8593")?;
                    let sequence = match frames.as_deref() {
                        Some(Media::Clip { paths }) => {
                            entry.set_item("paths", paths.iter().map(|p| path(p)).collect::<Vec<_>>())?;
                            Some("clip")
                        }
                        Some(Media::Trace { path: file }) => {
                            entry.set_item("paths", vec![path(file)])?;
                            Some("trace")
                        }
                        Some(_) => Some("synthetic"),
                        None => None,
                    };
                    entry.set_item("sequence", sequence)?;
                }
            }
            let encode = &video.encode;
            entry.set_item("codec", encode.codec.word())?;
            entry.set_item("size", encode.size.to_string())?;
            match encode.fps {
                Fps::Auto => entry.set_item("fps", "auto")?,
                // For `Fps::Clip`, set None, which means the frame rate of the clip.
                Fps::Clip | Fps::PerSecond(_) => entry.set_item("fps", encode.fps.number())?,
            }
            entry.set_item("audio_bps", video.audio.map(|rate| rate.as_bps()))?;
            entry.set_item("lasts_s", self.scenario().duration.as_secs_f64())?;
            entry.set_item("gop", encode.gop)?;
            entry.set_item("bframes", encode.bframes)?;
            entry.set_item("q_min", encode.q.0)?;
            entry.set_item("q_max", encode.q.1)?;
            list.append(entry)?;
        }
        Ok(list)
    }
}

impl PyScenario {
    pub(crate) fn scenario(&self) -> &Scenario {
        &self.loaded.scenario
    }
}
