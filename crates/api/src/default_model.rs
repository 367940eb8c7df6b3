use std::sync::{Arc, OnceLock};

use domain::ModelRef;

/// The model of a session that has chosen none, as clients are told it. Cheap to clone.
#[derive(Debug, Clone)]
pub struct DefaultModel {
    model: ModelRef,
    name: Option<Arc<OnceLock<String>>>,
    /// The names of all models of its server, once that has told them.
    served: Option<Arc<OnceLock<Vec<String>>>>,
}

impl DefaultModel {
    /// A model whose server has yet to say its name: `placeholder` until then.
    #[must_use]
    pub fn named_later(placeholder: ModelRef, name: Arc<OnceLock<String>>) -> Self {
        Self { model: placeholder, name: Some(name), served: None }
    }

    /// Adds the models that its server lists, once it has: lists show them beside this one.
    #[must_use]
    pub fn with_served(self, names: Arc<OnceLock<Vec<String>>>) -> Self {
        Self { served: Some(names), ..self }
    }

    /// Returns the names of the other models of its server, as far as they are known now.
    #[must_use]
    pub fn others(&self) -> Vec<String> {
        let own = self.get().model;
        let served = self.served.as_ref().and_then(|names| names.get());
        served.into_iter().flatten().filter(|name| **name != own).cloned().collect()
    }

    /// The model, as far as it is known now.
    #[must_use]
    pub fn get(&self) -> ModelRef {
        match self.name.as_ref().and_then(|name| name.get()) {
            Some(name) => ModelRef { model: name.clone(), ..self.model.clone() },
            None => self.model.clone(),
        }
    }
}

impl From<ModelRef> for DefaultModel {
    fn from(model: ModelRef) -> Self {
        Self { model, name: None, served: None }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    // Finding cluster 7: a gateway that started before the model server showed `custom/default` for its whole life.
    #[test]
    fn a_server_that_comes_later_gives_the_model_its_name() {
        let (placeholder, name) = (ModelRef::new("custom", "default"), Arc::default());
        let model = DefaultModel::named_later(placeholder.clone(), Arc::clone(&name));
        assert_eq!(model.get(), placeholder);
        name.set("qwen3:8b".to_owned()).expect("once");
        assert_eq!(model.get(), ModelRef::new("custom", "qwen3:8b"));
        assert_eq!(DefaultModel::from(placeholder.clone()).get(), placeholder);
    }

    // Finding trial-3 28: only the first of a server's models was listed.
    #[test]
    fn the_other_models_of_a_server_are_known_once_it_lists_them() {
        let names = Arc::new(OnceLock::new());
        let model = DefaultModel::from(ModelRef::new("custom", "b")).with_served(names.clone());
        assert!(model.others().is_empty());
        names.set(["a", "b", "c"].map(str::to_owned).to_vec()).expect("once");
        assert_eq!(model.others(), ["a", "c"]);
    }
}
